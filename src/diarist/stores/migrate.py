"""From an older schema to this one: numbered scripts in `schema/`, each run once, in one transaction with the record
that it ran (`user_version`). A copy of the file as it was stays beside it until all have run.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

import apsw

from ..errors import StoreCorrupt
from .sql import row, run


@cache
def scripts() -> dict[int, str]:
    """The scripts by the schema that each leads to. A new schema is a new file here; an old file never changes."""
    found = files(__package__ or "diarist.stores").joinpath("schema").iterdir()
    return {int(each.name[:4]): each.read_text(encoding="utf-8") for each in found if each.name.endswith(".sql")}


def schema_of(db: apsw.Connection) -> int:
    found = row(db, "PRAGMA user_version")
    return int(found[0]) if found else 0


def newest() -> int:
    return max(scripts())


def migrate(db: apsw.Connection, path: Path, steps: dict[int, str] | None = None) -> None:
    """Runs what is still to be run. Hold the lock. Whoever interrupts it finds one schema or the other, whole."""
    steps = scripts() if steps is None else steps
    waiting = {schema: script for schema, script in steps.items() if schema > schema_of(db)}
    if not waiting:
        return
    before = path.with_name(f"{path.name}.schema-{schema_of(db)}")
    if schema_of(db) > 0:
        _copy(db, before)  # anew, whatever an interrupted change left there
    for schema, script in sorted(waiting.items()):
        with db:  # one transaction; a failure rolls back to the schema before
            run(db, script)
            run(db, f"PRAGMA user_version = {schema}")
    problems = row(db, "PRAGMA integrity_check")
    if problems is None or problems[0] != "ok":
        raise StoreCorrupt(f"{path}: is damaged after its change of schema; the file as it was is {before.name}")
    clear(path)


def left(path: Path) -> bool:
    """Whether copies of older schemas lie beside the file."""
    return any(path.parent.glob(f"{path.name}.schema-*"))


def clear(path: Path) -> None:
    """Removes copies of older schemas that an interrupted change left. Hold the lock, with the new schema in place."""
    for left in path.parent.glob(f"{path.name}.schema-*"):
        left.unlink(missing_ok=True)


def _copy(db: apsw.Connection, to: Path) -> None:
    building = to.with_name(to.name + ".new")
    building.unlink(missing_ok=True)
    copy = apsw.Connection(str(building))
    try:
        with copy.backup("main", db, "main") as copying:
            copying.step()
    finally:
        copy.close()
    building.chmod(0o600)
    building.replace(to)
