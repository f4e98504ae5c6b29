"""60 s of mixed load on a server of its own, on loopback, with 50 clients: no error, no note lost.

    python bench/load.py [--seconds 60] [--clients 50] [--owners 20]

Prints one JSON object: requests, errors, p50 and p95 in milliseconds for each kind of request, after one that loads the
embedder. Exits 1 if anything failed or an acknowledged note is not there afterwards.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict

WORDS = ["tea", "coffee", "Colombia", "moka", "Rosario", "rain", "grind", "kilo", "Tuesday", "invoice", "decaf", "nuts"]


class Client(threading.Thread):
    """One customer's program: it keeps its connection, and writes and asks in turn."""

    def __init__(self, number, port, token, owner, until):
        super().__init__()
        self.dice, self.owner, self.until, self.number = random.Random(number), owner, until, number
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.took, self.errors, self.kept = defaultdict(list), Counter(), []

    def run(self):
        turn = 0
        while time.monotonic() < self.until:
            turn += 1
            said = f"{' '.join(self.dice.sample(WORDS, 6))} {self.number}-{turn}."
            kind = self.dice.choices(["remember", "recall", "list", "append"], [40, 40, 10, 10])[0]
            if kind == "remember":
                answer = self.ask(kind, "POST", "/notes", {"text": said}, 201)
                if answer:
                    self.kept.append(answer["id"])
            elif kind == "recall":
                self.ask(kind, "POST", "/recall", {"question": said}, 200)
            elif kind == "list":
                self.ask(kind, "GET", "/notes?limit=20", None, 200)
            else:
                message = {"messages": [{"role": "user", "content": said}]}
                self.ask(kind, "POST", f"/sessions/s{self.number}/messages", message, 201)
        self.connection.close()

    def ask(self, kind, method, path, body, expected):
        began = time.perf_counter()
        try:
            self.connection.request(method, f"/v1/owners/{self.owner}{path}", body and json.dumps(body), self.headers)
            answer = self.connection.getresponse()
            data = answer.read()
        except OSError as error:
            self.errors[f"{kind} {type(error).__name__}"] += 1
            self.connection.close()
            return None
        self.took[kind].append(1000 * (time.perf_counter() - began))
        if answer.status != expected:
            self.errors[f"{kind} {answer.status}"] += 1
            return None
        return json.loads(data)


def started(place, embedder):
    command = [sys.executable, "-m", "diarist", "--memory", place, "serve", "--port", "0", "--rate", "100000"]
    server = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "DIARIST_EMBEDDER": embedder}
    )
    token = ""
    for line in server.stderr:
        token = found[1] if (found := re.search(r"once: (\S+)", line)) else token
        if found := re.search(r":(\d+)\. Ctrl", line):
            return server, int(found[1]), token
    raise SystemExit("the server did not start")


def lost(port, token, clients):
    """Acknowledged notes that the server does not list."""
    missing = set()
    for owner in {client.owner for client in clients}:
        connection, there, offset = http.client.HTTPConnection("127.0.0.1", port, timeout=60), set(), 0
        while True:
            path = f"/v1/owners/{owner}/notes?limit=1000&offset={offset}&include_replaced=true"
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            notes = json.loads(connection.getresponse().read())["notes"]
            if not notes:
                break
            there |= {note["id"] for note in notes}
            offset += len(notes)
        connection.close()
        missing |= {id for client in clients if client.owner == owner for id in client.kept} - there
    return len(missing)


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--clients", type=int, default=50)
    options.add_argument("--owners", type=int, default=20)
    options.add_argument("--embedder", default="use")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        server, port, token = started(f"{place}/memory", given.embedder)
        first = Client(0, port, token, "owner0", 0)
        first.ask("first", "POST", "/notes", {"text": "The first."}, 201)
        first.connection.close()
        until = time.monotonic() + given.seconds
        clients = [Client(n, port, token, f"owner{n % given.owners}", until) for n in range(given.clients)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        missing = lost(port, token, clients)
        server.send_signal(signal.SIGTERM)
        code = server.wait(10)
        server.stderr.close()
    took = {kind: sorted(t for c in clients for t in c.took[kind]) for kind in ("remember", "recall", "list", "append")}
    errors = sum((client.errors for client in clients), Counter())
    print(
        json.dumps(
            {
                "seconds": given.seconds,
                "clients": given.clients,
                "requests": sum(map(len, took.values())),
                "errors": dict(errors),
                "lost": missing,
                "exit": code,
                "ms": {
                    kind: {
                        "n": len(each),
                        "p50": round(statistics.median(each), 1),
                        "p95": round(each[int(0.95 * len(each))], 1),
                    }
                    for kind, each in took.items()
                    if each
                },
            }
        )
    )
    sys.exit(bool(errors or missing or code))


if __name__ == "__main__":
    main()
