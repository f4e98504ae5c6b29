"""A recorded run at the farm: served on this machine for as long as it is watched, or written to a file of its own.

It needs no extra and no token: the run is under an address that nobody can guess, on loopback only, and nothing else is
served but the pages.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from base64 import b64encode
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from ..events import Event, as_data
from .gate import HEADERS, LOCAL_NAMES
from .inspector import Inspector

PAGE = "farm.html"
_SCRIPT = re.compile(r'<script type="module" src="([^"]+)"></script>')
_STYLE = re.compile(r'<link rel="stylesheet" href="([^"]+)">')
_ICON = re.compile(r'<link rel="icon"[^>]*>')
_IMPORT = re.compile(r'^import (?:\{[^}]*\} from )?"\./([\w.-]+)";\n', re.MULTILINE)


def as_lines(events: Iterable[Event]) -> bytes:
    """The events as JSON lines, in ASCII."""
    return b"".join(json.dumps(as_data(event)).encode() + b"\n" for event in events)


class Replay:
    """A run and the pages, on a loopback port. `url` opens it; `serve` blocks until `stop` or Ctrl-C."""

    def __init__(self, run: bytes, port: int = 0) -> None:
        """OSError if the port is taken."""
        inspector, secret = Inspector(), secrets.token_urlsafe(16)
        pages = {f"/{secret}/{path}": inspector.read(path) for path in inspector.paths if path and path != "index.html"}
        pages[f"/{secret}/run.jsonl"] = run, "application/x-ndjson"

        class Handler(BaseHTTPRequestHandler):
            server_version, sys_version, protocol_version, timeout = "diarist", "", "HTTP/1.1", 30

            def do_GET(self) -> None:
                name = (self.headers.get("Host") or "").rpartition(":")[0]
                found = pages.get(urlsplit(self.path).path)
                if name not in LOCAL_NAMES:  # a page of another site that points its own name here
                    self._answer(421, b"", "text/plain")
                elif found is None:
                    self._answer(404, b"", "text/plain")
                else:
                    self._answer(200, *found)

            def _answer(self, status: int, data: bytes, kind: str) -> None:
                self.send_response(status)
                headers = {"content-type": kind, "content-length": str(len(data)), "cache-control": "no-store"}
                for header, value in {**headers, **HEADERS}.items():
                    self.send_header(header, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: who asked for what is nobody's affair."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/{secret}/{PAGE}#run"

    def serve(self) -> None:
        try:
            self._server.serve_forever(0.1)
        finally:
            self._server.server_close()

    def stop(self) -> None:
        """From another thread."""
        self._server.shutdown()


def as_page(run: bytes) -> str:
    """The farm with a run inside, as one page of HTML that needs nothing else and reaches nothing: its policy lets in
    its own script and style, by their hashes, and no other."""
    page, _ = _text(PAGE)
    style = "".join(_text(name)[0] for name in _STYLE.findall(page)).replace("url(icon.svg)", f"url({_icon()})")
    script = _bundled(_SCRIPT.findall(page)[0])
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; base-uri 'none'"
    page = _STYLE.sub("", page)
    page = _ICON.sub(lambda _: f'<link rel="icon" href="{_icon()}">\n<style>{style}</style>', page)
    # A data block is never run, and in one no text can end it but </script>, which has no < left.
    data = run.decode("ascii").replace("<", "\\u003c")
    ending = f'<script type="application/x-ndjson" id="run">{data}</script>\n<script type="module">{script}</script>\n'
    page = _SCRIPT.sub("", page).replace("</body>", f"{ending}</body>")
    return page.replace(
        '<meta charset="utf-8">',
        f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}; form-action \'none\'">',
    )


def _bundled(first: str) -> str:
    """The module and those it imports, as one: each after those it needs. Their top-level names must differ."""
    done: dict[str, str] = {}

    def take(name: str) -> None:
        if name in done:
            return
        text, _ = _text(name)
        done[name] = ""  # before its imports: two modules may not wait for each other
        for needed in _IMPORT.findall(text):
            take(needed)
        done[name] = re.sub(
            r"^export (?=(?:async )?(?:function|const|class|let)\b)", "", _IMPORT.sub("", text), flags=re.M
        )
        order.append(name)

    order: list[str] = []
    take(first)
    return "\n" + "\n".join(f"// {name}\n{done[name]}" for name in order)


def _text(name: str) -> tuple[str, str]:
    data, kind = Inspector().read(name)
    return data.decode(), kind


def _icon() -> str:
    return f"data:image/svg+xml;base64,{b64encode(Inspector().read('icon.svg')[0]).decode()}"


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
