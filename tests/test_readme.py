"""What README and docs show is what happens: their blocks run, page by page, in a folder of their own.

A ```python block is executed, a ```sh block of `diarist` commands is run; where a ```text block follows, it is what
they print. Scores may differ by a little from machine to machine: which embedders install depends on it.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[+-]?\b\d+\.\d\d\b")  # a score, or one of its parts
ID_OR_DATE = re.compile(r"\b[0-9a-f]{32}\b|\b20\d\d-\d\d-\d\d\b")


def assert_same(printed: str, shown: str) -> None:
    """Equal, but for scores (a little), for ids and dates, and for how the spaces fall."""
    both = f"printed:\n{printed}\nbut the page shows:\n{shown}"
    bare = [ID_OR_DATE.sub("*", NUMBER.sub("0.00", text)).split() for text in (printed, shown)]
    assert bare[0] == bare[1], both
    for now, then in zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True):
        assert math.isclose(float(now), float(then), abs_tol=0.1, rel_tol=0.15), both


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_the_page_do_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DIARIST_MEMORY", raising=False)
    monkeypatch.setenv("DIARIST_EMBEDDER", "use")  # for the commands: each is a process, and loads in half the time
    names: dict[str, object] = {"__name__": "page"}
    blocks = [*BLOCK.findall(page.read_text(encoding="utf-8")), ("", "")]
    for (language, code), (following, expected) in pairwise(blocks):
        if language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(code, page.name, "exec"), names)
            printed = out.getvalue()
        elif language == "sh" and "diarist" in code and not re.search(r"^(make|pip|git|cp) ", code, re.MULTILINE):
            run = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=60, check=False)
            printed = run.stdout
            assert run.returncode in (0, 1), f"{code}\n{run.stderr}"
            assert "Traceback" not in run.stderr
        else:
            continue
        if following == "text":
            assert_same(printed, expected)


def test_every_command_and_option_is_documented():
    from diarist.cli.commands import app

    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    root = typer.main.get_command(app)
    documented = {}
    for title, body in re.findall(r"^## `diarist (.*?)`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL):
        documented[title.split()[0]] = f"{title}\n{body}"
    assert documented.keys() - {"[--memory"} == root.commands.keys()
    for name, command in root.commands.items():
        for param in command.params:
            for option in (o for o in param.opts if o.startswith("--")):
                assert f"`{option}" in documented[name], f"{name} {option}"
    for param in root.params:
        for option in (o for o in param.opts if o.startswith("--")):
            assert f"`{option}" in page, option


def test_every_page_is_linked_from_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").glob("*.md")):
        assert f"](docs/{page.name})" in readme, page.name


@pytest.mark.parametrize("page", [*PAGES, ROOT / "AGENTS.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
