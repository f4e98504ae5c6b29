"""What most tests begin with: a folder, a clock that stands still, a model's server, and the command line."""

from __future__ import annotations

import io
import json
import sys
from typing import Any, NamedTuple

import pytest

from diarist.testing import FixedClock, HashEmbedder, LoopbackEndpoint
from support import quick_folder


@pytest.fixture
def quick():
    """A folder in memory where there is one."""
    with quick_folder() as place:
        yield place


@pytest.fixture
def place(tmp_path):
    """Where the memory is, or will be."""
    return tmp_path / "memory"


@pytest.fixture
def clock():
    return FixedClock("2026-03-01T09:00:00Z")


@pytest.fixture(scope="session")
def running():
    with LoopbackEndpoint() as server:
        yield server


@pytest.fixture
def server(running):
    """A model's server, as new."""
    running.clear()
    return running


# -- the command line ------------------------------------------------------------------------------------------------


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def embedder(monkeypatch):
    """What commands in this process embed with; a test may put another in `[0]`."""
    held = [HashEmbedder()]
    monkeypatch.setattr("diarist.memory.open_embedder", lambda spec: held[0] if isinstance(spec, str) else spec)
    return held


@pytest.fixture
def diarist(place, embedder, capsys, monkeypatch):
    """The command in this process, with a hashing embedder; stdin as text or bytes."""
    from diarist.cli import main

    monkeypatch.setenv("DIARIST_MEMORY", str(place))

    def run(*args, stdin=""):
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        monkeypatch.setattr(sys, "argv", ["diarist", *map(str, args)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert "should not happen" not in err
        return Ended(end.value.code or 0, out, err)

    return run
