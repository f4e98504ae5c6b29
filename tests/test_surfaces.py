"""What holds on every surface: one table of behaviours, the same test over Python, the command line, HTTP and MCP.

A surface is a small driver with the verbs of `Surface`; whoever adds one writes a driver and names it in `SURFACES`.
Each test says what it proves. What only one surface has is tested where that surface is.
"""

from __future__ import annotations

import io
import json
import sys
from abc import ABC, abstractmethod
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest

from diarist import NotFound
from diarist.cli import main
from diarist.testing import HashEmbedder
from serving import of, serving, serving_mcp
from support import opened

ANA, BEN = "c-2291", "c-2291/../ben"
MOKA = "Buys 1 kg of Colombia, ground for a moka pot."
NOTHING = "Nothing saved about that."


class Refused(Exception):
    """The surface said no, and why."""


class Surface(ABC):
    """What every surface can do, each call about one owner. `said` is all that ever came back, as text."""

    takes_source = True

    def __init__(self, place, stack, monkeypatch, capsys):
        self.place, self.stack, self.monkeypatch, self.capsys = place, stack, monkeypatch, capsys
        self.said = ""
        self.open()

    @abstractmethod
    def open(self): ...

    @abstractmethod
    def remember(self, owner, text, **more):
        """-> the note's id. Refused for bad input."""

    @abstractmethod
    def recall(self, owner, question):
        """-> (verdict, [texts, best first], what a model or person is told)"""

    @abstractmethod
    def notes(self, owner):
        """-> [texts, newest first]"""

    @abstractmethod
    def edit(self, owner, id, text): ...

    @abstractmethod
    def forget(self, owner, id): ...

    @abstractmethod
    def export(self, owner):
        """-> everything about the owner, as text"""


class Python(Surface):
    def open(self):
        self.memory = self.stack.enter_context(opened(self.place))

    def _call(self, verb, *args, **named):
        try:
            result = verb(*args, **named)
        except (ValueError, TypeError, NotFound) as error:
            self.said += str(error)
            raise Refused(str(error)) from error
        self.said += repr(result)
        return result

    def remember(self, owner, text, **more):
        return self._call(lambda: self.memory.diary(owner).remember(text, **more)).id

    def recall(self, owner, question):
        found = self._call(lambda: self.memory.diary(owner).recall(question))
        return found.verdict, [hit.note.text for hit in found], found.context()

    def notes(self, owner):
        return [note.text for note in self._call(self.memory.diary(owner).notes)]

    def edit(self, owner, id, text):
        self._call(lambda: self.memory.diary(owner).edit(id, text))

    def forget(self, owner, id):
        self._call(lambda: self.memory.diary(owner).forget(id))

    def export(self, owner):
        return json.dumps(self._call(self.memory.diary(owner).export), ensure_ascii=False)


class CommandLine(Surface):
    def open(self):
        self.monkeypatch.setattr(
            "diarist.memory.open_embedder", lambda spec: HashEmbedder() if isinstance(spec, str) else spec
        )
        self.monkeypatch.setenv("DIARIST_MEMORY", str(self.place))

    def _run(self, *args):
        self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b""), encoding="utf-8"))
        self.monkeypatch.setattr(sys, "argv", ["diarist", *args])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = self.capsys.readouterr()
        assert "Traceback" not in err
        self.said += out + err
        return end.value.code or 0, out, err

    def _checked(self, *args):
        code, out, err = self._run(*args)
        if code:
            raise Refused(err)
        return out

    def remember(self, owner, text, **more):
        options = [f"--{name.replace('_', '-')}={value}" for name, value in more.items()]
        return self._checked("remember", *options, "--", owner, text).strip()

    def recall(self, owner, question):
        found = json.loads(self._run("recall", "--json", "--", owner, question)[1])
        told = self._run("recall", "--", owner, question)[1].strip()
        return found["verdict"], [hit["note"]["text"] for hit in found["hits"]], told

    def notes(self, owner):
        return [json.loads(line)["text"] for line in self._run("notes", "--json", "--", owner)[1].splitlines()]

    def edit(self, owner, id, text):
        self._checked("edit", "--", owner, id, text)

    def forget(self, owner, id):
        self._checked("forget", "--", owner, id)

    def export(self, owner):
        return self._run("export", "--", owner)[1]


class Http(Surface):
    """Each owner with a token of its own."""

    def open(self):
        self.server = self.stack.enter_context(serving(self.place))

    def _call(self, method, owner, path, body=None):
        token, _ = self.server.tokens.make(owner, datetime.now(UTC)) if owner.strip() else (self.server.admin, None)
        answer = self.server.call(method, of(owner) + path, body, token=token)
        self.said += answer.body.decode()
        assert answer.status < 500
        if answer.status >= 400:
            raise Refused(answer.json["error"]["message"])
        return answer

    def remember(self, owner, text, **more):
        return self._call("POST", owner, "/notes", {"text": text, **more}).json["id"]

    def recall(self, owner, question):
        found = self._call("POST", owner, "/recall", {"question": question}).json
        return found["verdict"], [hit["note"]["text"] for hit in found["hits"]], found["context"]

    def notes(self, owner):
        return [each["text"] for each in self._call("GET", owner, "/notes").json["notes"]]

    def edit(self, owner, id, text):
        self._call("PATCH", owner, f"/notes/{id}", {"text": text})

    def forget(self, owner, id):
        self._call("DELETE", owner, f"/notes/{id}")

    def export(self, owner):
        return self._call("GET", owner, "/export").body.decode()


class Mcp(Surface):
    """The tools of a model, over HTTP, each owner with a token of its own. A model says what a person told it, so no
    source; it corrects by erasing and saying anew; and all that it can see stands for an export."""

    takes_source = False

    def open(self):
        self.server = self.stack.enter_context(serving_mcp(self.place))

    def _call(self, owner, tool, **arguments):
        result = self.server.call(self.server.token(owner), tool, **arguments)
        self.said += json.dumps(result, ensure_ascii=False)
        if result.get("isError"):
            raise Refused(result["content"][0]["text"])
        return result["structuredContent"], result["content"][0]["text"]

    def remember(self, owner, text, **more):
        return self._call(owner, "remember", note=text, **more)[0]["id"]

    def recall(self, owner, question):
        data, told = self._call(owner, "recall", query=question)
        return data["verdict"], [each["text"] for each in data["notes"]], told

    def notes(self, owner):
        return [each["text"] for each in self._call(owner, "notes")[0]["notes"]]

    def edit(self, owner, id, text):
        self.forget(owner, id)
        self.remember(owner, text)

    def forget(self, owner, id):
        self._call(owner, "forget", ids=[id])

    def export(self, owner):
        seen = [self._call(owner, *each)[1] for each in (["notes"], ["sessions"])]
        return "\n".join([*seen, self._call(owner, "page", action="read")[1]])


SURFACES = {"python": Python, "command line": CommandLine, "http": Http, "mcp": Mcp}


@pytest.fixture(params=SURFACES)
def surface(request, tmp_path, monkeypatch, capsys):
    with ExitStack() as stack:
        yield SURFACES[request.param](tmp_path / "memory", stack, monkeypatch, capsys)


def test_what_is_remembered_is_recalled(surface):
    """R67: the note that answers comes first, word for word, and the verdict says that there is one."""
    surface.remember(ANA, "Ships to Rosario.")
    surface.remember(ANA, MOKA)
    verdict, texts, told = surface.recall(ANA, "Colombia ground for a moka pot")
    assert verdict in ("strong", "weak")
    assert texts[0] == MOKA
    assert "moka pot" in told
    assert surface.notes(ANA) == [MOKA, "Ships to Rosario."]


def test_nothing_saved_is_said(surface):
    """R63: of somebody unknown, and of what nothing was said about."""
    assert surface.recall(ANA, "the same as last time") == ("nothing", [], NOTHING)
    surface.remember(ANA, MOKA)
    verdict, _, told = surface.recall(ANA, "zebra xylophone quartz")
    assert (verdict, told) == ("nothing", NOTHING)


def test_the_owners_are_apart(surface):
    """R55, R57, T-ISO-1, T-ISO-6: what is said about one is in no byte that comes back about the other; an id of the
    other's is no id."""
    sentinels = {ANA: "violet-anchor-7", BEN: "copper-lantern-9"}
    ids = {}
    for owner, word in sentinels.items():
        more = {"source": f"from {word}"} if surface.takes_source else {}
        ids[owner] = surface.remember(owner, f"The code is {word}.", **more)
    for owner, other in ((ANA, BEN), (BEN, ANA)):
        surface.said = ""
        surface.recall(owner, "What is the code?")
        surface.notes(owner)
        surface.export(owner)
        with pytest.raises(Refused):
            surface.forget(owner, ids[other])
        with pytest.raises(Refused):
            surface.edit(owner, ids[other], "Mine now.")
        assert sentinels[owner] in surface.said
        assert sentinels[other] not in surface.said
    assert [surface.notes(owner) for owner in (ANA, BEN)] == [
        ["The code is violet-anchor-7."],
        ["The code is copper-lantern-9."],
    ]


def test_what_is_forgotten_is_gone(surface):
    """R62: not listed, not recalled, not exported, in no file; and it cannot be forgotten twice."""
    id = surface.remember(ANA, "Her card ends in xylograph-44.")
    surface.remember(ANA, MOKA)
    surface.forget(ANA, id)
    surface.said = ""
    assert surface.notes(ANA) == [MOKA]
    surface.recall(ANA, "what does her card end in?")
    assert "xylograph" not in surface.export(ANA) + surface.said
    with pytest.raises(Refused):
        surface.forget(ANA, id)
    for path in surface.place.rglob("*"):
        assert path.is_dir() or b"xylograph" not in path.read_bytes()


def test_a_correction_takes_the_old_texts_place(surface):
    """The same note with another text; the old one is in no file."""
    id = surface.remember(ANA, "Lives in Zanzibarburg.")
    surface.edit(ANA, id, "Lives in Porto.")
    assert surface.notes(ANA) == ["Lives in Porto."]
    assert surface.recall(ANA, "Lives in Porto")[1] == ["Lives in Porto."]
    for path in surface.place.rglob("*"):
        assert path.is_dir() or b"zanzibarburg" not in path.read_bytes().lower()


def test_the_same_text_again_is_the_same_note(surface):
    """R50: said three times, it takes one place."""
    ids = {surface.remember(ANA, text) for text in (MOKA, MOKA.upper(), MOKA)}
    assert len(ids) == 1
    assert len(surface.notes(ANA)) == 1


BAD = {
    "empty": (ANA, "", {}),
    "blank": (ANA, "  \n ", {}),
    "too long": (ANA, "x" * 64_001, {}),
    "origin": (ANA, "Likes tea.", {"origin": "somebody"}),
    "time": (ANA, "Likes tea.", {"happened_at": "soon"}),
    "source": (ANA, "Likes tea.", {"source": "s" * 300}),
    "no owner": (" ", "Likes tea.", {}),
    "owner too long": ("x" * 1_025, "Likes tea.", {}),
}


def test_bad_input_is_refused_and_nothing_is_kept(surface):
    """R54, T-ISO-4: with a reason, before anything is written."""
    for name, (owner, text, more) in BAD.items():
        with pytest.raises((Refused, ValueError)) as why:
            surface.remember(owner, text, **more)
        assert len(str(why.value)) > 10, name
        assert not list(surface.place.glob("*/diary.db")), name


def test_a_restart_loses_nothing(surface):
    """R61: what was acknowledged is there for the next process."""
    id = surface.remember(ANA, MOKA)
    surface.stack.close()
    with opened(surface.place) as memory:
        assert memory.diary(ANA).note(id).text == MOKA
