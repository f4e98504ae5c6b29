"""Draws what `bench/peers.py` measured, how a recall and the writing of a note grow with the number of notes, and
prints all of it as the tables of `docs/speed.md`.

    python bench/plot.py RUNS.jsonl [--to docs/pictures/speed.svg]

Both axes are logarithmic: a straight line upwards grows as the notes do, a flat one does not grow. Of several lines for
the same system and size the last one counts. The picture is readable on light and on dark.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

# In pixels: the picture, a panel and its margins, the room for names at its right, and between two names.
WIDTH, HEIGHT = 900, 380
PANEL, TOP, BOTTOM, LABELS, APART = 450, 48, 48, 92, 14
ORDER = ("diarist", "chroma", "lancedb", "sqlite-vec", "json", "bare commit")
NAMES = {"diarist": "Diarist", "chroma": "Chroma", "lancedb": "LanceDB", "json": "JSON file"}
STYLE = """
  svg { --ground: #ffffff; --ink: #1f2328; --faint: #d8dee4; --muted: #59636e;
        --diarist: #0550ae; --chroma: #9a3b00; --lancedb: #1a7f37; --sqlite-vec: #8250df; --json: #bf3989 }
  @media (prefers-color-scheme: dark) {
    svg { --ground: #0d1117; --ink: #e6edf3; --faint: #30363d; --muted: #9198a1;
          --diarist: #79c0ff; --chroma: #ffa657; --lancedb: #7ee787; --sqlite-vec: #d2a8ff; --json: #ff9bce }
  }
  text { font: 12px system-ui, sans-serif; fill: var(--muted) }
  .title { font-size: 14px; font-weight: 600; fill: var(--ink) }
  .grid { stroke: var(--faint) }
  .line { fill: none; stroke-width: 1.75 }
"""


class Point(NamedTuple):
    notes: int
    ms: float


class Axis(NamedTuple):
    """A logarithmic axis from one power of ten to another, over so many pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        return round(self.start + share * (self.end - self.start), 1)

    def powers(self) -> list[float]:
        first, last = round(math.log10(self.low)), round(math.log10(self.high))
        return [10.0**power for power in range(first, last + 1)]


def around(values: Iterable[float]) -> tuple[float, float]:
    """The powers of ten that values lie between."""
    values = list(values)
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return 10.0**low, 10.0 ** max(high, low + 1)


def lines(runs: list[dict[str, Any]], measure: str) -> dict[str, list[Point]]:
    """For each system, milliseconds (p50) by number of notes."""
    found: dict[str, dict[int, float]] = {}
    for run in runs:
        if measure in run and "owners" not in run:
            found.setdefault(run["who"], {})[run["notes"]] = run[measure]["p50"]
            if measure == "note_ms" and run["who"] == "diarist":
                found.setdefault("bare commit", {})[run["notes"]] = run["bare_commit_ms"]["p50"]
    return {who: [Point(*each) for each in sorted(found[who].items())] for who in ORDER if who in found}


def spaced(wanted: list[float]) -> list[float]:
    """Heights for names, in order, each as near as can be to where its line ends and none on another."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    placed = list(wanted)
    for _ in range(50):
        for above, below in pairwise(order):
            if (short := APART - (placed[below] - placed[above])) > 0:
                placed[above] -= short / 2
                placed[below] += short / 2
    return [round(each, 1) for each in placed]


def panel(title: str, series: dict[str, list[Point]], left: int) -> list[str]:
    points = [point for several in series.values() for point in several]
    across = Axis(*around(point.notes for point in points), left + 52, left + PANEL - LABELS)
    up = Axis(*around(point.ms for point in points), HEIGHT - BOTTOM, TOP)
    drawn = [f'<text class="title" x="{left + 12}" y="26">{title}</text>']
    for value in up.powers():
        y = up.at(value)
        drawn += [
            f'<line class="grid" x1="{across.start}" x2="{across.end}" y1="{y}" y2="{y}"/>',
            f'<text x="{across.start - 6}" y="{y + 4}" text-anchor="end">{value:,.6g}</text>',
        ]
    for value in across.powers():
        x = across.at(value)
        drawn += [
            f'<line class="grid" x1="{x}" x2="{x}" y1="{up.start}" y2="{up.end}"/>',
            f'<text x="{x}" y="{up.start + 18}" text-anchor="middle">{int(value):,}</text>',
        ]
    middle = (across.start + across.end) / 2
    drawn.append(f'<text x="{middle}" y="{up.start + 38}" text-anchor="middle">notes of one owner</text>')
    heights = spaced([up.at(several[-1].ms) for several in series.values()])
    for (who, several), height in zip(series.items(), heights, strict=True):
        colour = "var(--muted)" if who == "bare commit" else f"var(--{who})"
        look = ' stroke-dasharray="4 4"' if who == "bare commit" else ""
        thick = ' style="stroke-width: 3"' if who == "diarist" else ""
        way = " ".join(f"{across.at(point.notes)},{up.at(point.ms)}" for point in several)
        end = across.at(several[-1].notes)
        drawn += [
            f'<polyline class="line" stroke="{colour}"{look}{thick} points="{way}"/>',
            *(
                f'<circle cx="{across.at(point.notes)}" cy="{up.at(point.ms)}" r="3" fill="{colour}">'
                f"<title>{NAMES.get(who, who)}, {point.notes:,} notes: {point.ms:g} ms</title></circle>"
                for point in several
            ),
            f'<text x="{end + 8}" y="{height + 4}" style="fill: {colour}">{NAMES.get(who, who)}</text>',
        ]
    return drawn


def picture(runs: list[dict[str, Any]]) -> str:
    drawn = [
        *panel("One recall, milliseconds", lines(runs, "recall_ms"), 0),
        *panel("One note written, milliseconds", lines(runs, "note_ms"), PANEL),
    ]
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="about">',
            '<title id="about">How long a recall and the writing of a note take as a diary grows, by system</title>',
            f"<style>{STYLE}</style>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" style="fill: var(--ground)"/>',
            *drawn,
            "</svg>\n",
        ]
    )


COLUMNS = {
    "recall, p50 / p95 ms": "recall_ms",
    "after a write": "recall_after_write_ms",
    "one note": "note_ms",
    "over a bare commit": "note_over_bare",
    "cold open": "cold_ms",
    "bulk notes/s": "bulk_notes_per_s",
    "bytes a note": "bytes_per_note",
    "memory MB": "memory_mb",
    "agreement": "agreement_at_10",
}


def cell(value: Any) -> str:
    if isinstance(value, dict):
        value = [value["p50"], value["p95"]]
    if isinstance(value, list):
        return " / ".join(map(cell, value))
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown, one system a row; columns that no row has are left out."""
    columns = {title: name for title, name in COLUMNS.items() if any(name in row for row in rows)}
    lines = ["| " + " | ".join(["", *columns]) + " |", "|---" * (1 + len(columns)) + "|"]
    for row in sorted(rows, key=lambda row: ORDER.index(row["who"])):
        cells = [NAMES.get(row["who"], row["who"]), *(cell(row.get(name)) for name in columns.values())]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def tables(runs: list[dict[str, Any]]) -> str:
    last = {(run.get("owners", 1), run["notes"], run["who"]): run for run in runs}
    told: list[str] = []
    for owners, notes in sorted({key[:2] for key in last}):
        title = f"{notes:,} notes" if owners == 1 else f"{owners:,} owners of {notes:,} notes each"
        told += [f"**{title}**", table([run for key, run in last.items() if key[:2] == (owners, notes)])]
    return "\n\n".join(told)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("runs", type=Path)
    options.add_argument("--to", type=Path, default=Path(__file__).parent.parent / "docs" / "pictures" / "speed.svg")
    asked = options.parse_args()
    runs = [json.loads(line) for line in asked.runs.read_text().splitlines() if line.strip()]
    asked.to.write_text(picture(runs))
    print(tables(runs))


if __name__ == "__main__":
    main()
