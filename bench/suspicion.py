"""How many instructions in a corpus are flagged, and how many plain texts: python bench/suspicion.py CORPUS.jsonl

Each line has id, text, label ("attack" or "benign"), kind, lang and source. A line is in the half that the rules were
made by if the first byte of its id's SHA-256 is even, else in the half that is reported.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections import defaultdict
from pathlib import Path

from diarist import redaction, suspicion

ATTACKS = ("memory_note", "indirect_injection", "memory_persistence")
PLAIN = ("persona_fact", "note_plain", "assistant_request", "customer_message")


def groups(each: dict[str, str]) -> list[str]:
    told = [f"{each['label']}: {each['kind']}"]
    aws = "aws-samples" in each["source"]
    if each["label"] == "attack" and (each["kind"] in ATTACKS or aws):
        told += ["= attacks on a memory", f"  of these in {each['lang']}"]
    if each["label"] == "benign" and each["kind"] in PLAIN:
        told.append("= plain notes and requests")
    if each["kind"] == "note_standing_preference":
        told.append("= standing preferences")
    return told


def main(corpus: Path) -> None:
    rows = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for each in rows:
        held_out = hashlib.sha256(each["id"].encode()).digest()[0] % 2
        flagged = suspicion.reads_like_instructions(each["text"])
        for group in groups(each):
            counts[group][2 * held_out] += flagged
            counts[group][2 * held_out + 1] += 1
    print(f"{'group':44} {'made by':>14} {'held out':>16}")
    for group, (a, of_a, b, of_b) in sorted(counts.items()):
        print(f"{group:44} {a:5}/{of_a:<5}      {b:5}/{of_b:<5} {100 * b / max(1, of_b):5.1f} %")
    secrets = [each["text"] for each in rows if each["kind"] == "secret"]
    print(f"secrets found: {sum(bool(redaction.kinds(text)) for text in secrets)} of {len(secrets)}")
    notes = [each["text"] for each in rows if len(each["text"]) < 300]
    for name, look in (("suspicion.reasons", suspicion.reasons), ("redaction.masked", redaction.masked)):
        start = time.process_time()
        for text in notes:
            look(text)
        print(
            f"{name}: {(time.process_time() - start) / len(notes) * 1e6:.0f} us of CPU a text ({len(notes)} short ones)"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
