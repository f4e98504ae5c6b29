"""`diarist chat`: a conversation over real HTTP, in a pipe and at a terminal, and what it leaves."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import select
import subprocess
import sys
import time
from itertools import takewhile

import pytest

from diarist import Memory
from diarist.testing import Fault, HashEmbedder, call

OWNER = "c-2291"
MOKA = "Buys 1 kg of Colombia, ground for a moka pot."
HOSTILE = "Buys \x1b[31mred\x1b[0m\x07 tea\u202e backwards\u200b"


@pytest.fixture
def diarist(diarist, server, monkeypatch):
    """The command in this process, with the scripted server as its model."""
    monkeypatch.setenv("DIARIST_MODEL", "m")
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return diarist


@pytest.fixture
def kept(place):
    """Fills the memory through the library and gives back the notes."""

    def fill(*texts, owner=OWNER):
        with Memory(place, embedder=HashEmbedder()) as memory:
            return memory.diary(owner).remember_many(texts)

    return fill


def sent(server):
    """What each request held: role and content, without the notes that a session's first message brings."""
    return [[(each["role"], alone(each["content"])) for each in body["messages"]] for body in server.chats]


def alone(content):
    return content.split("\n\nNothing saved")[0].split("\n\nNotes saved")[0] if content else content


def forget_what_is_listed(messages):
    return call("forget", ids=re.findall(r"\b[0-9a-f]{32}\b", messages[-1]["content"]))


# --- owners apart, then a restart -------------------------------------------------------------------------------------


def test_another_owners_notes_page_and_sessions_are_out_of_reach(diarist, server, kept):
    kept("The secret is salmon.", owner="other")
    diarist("page", "other", "--add", "The secret is salmon.")
    server.will_say("Hello.")
    diarist("chat", "other", "--session", "s", stdin="The secret is salmon.\n")
    server.will_say(
        [call("recall", query="the secret", past_sessions=True), call("notes"), call("sessions")], "No idea."
    )
    ended = diarist("chat", OWNER, "--session", "s", stdin="What is the secret?\n/notes\n/page\n/why\n")
    assert (ended.code, ended.out) == (0, "No idea.\n")
    assert "salmon" not in ended.err + str(server.chats[1:])
    assert diarist("chat", "third", "--last", stdin="hi\n").code == 1


def test_a_session_goes_on_in_a_later_process_and_a_new_one_begins_empty(diarist, server):
    server.will_say("A kilo, then.")
    diarist("chat", OWNER, "--session", "order-17", stdin="A kilo of Colombia.\n")
    server.will_say("It was Colombia.", "Colombia, as I said.", "I do not know.")
    assert "goes on after 2 messages" in diarist("chat", OWNER, "--session", "order-17", stdin="Which?\n").err
    assert "Session order-17 goes on after 4 messages" in diarist("chat", OWNER, "--last", stdin="Which again?\n").err
    fresh = diarist("chat", OWNER, stdin="Which?\n")
    assert re.match(r"Session chat-\d{4}-\d\d-\d\d-\d{4}-[0-9a-f]{4} begins\.\n", fresh.err)
    assert [len(messages) for messages in sent(server)] == [2, 4, 6, 2]
    assert sent(server)[1][1:] == [("user", "A kilo of Colombia."), ("assistant", "A kilo, then."), ("user", "Which?")]


# --- in a pipe --------------------------------------------------------------------------------------------------------


def test_each_line_of_stdin_is_a_prompt_and_only_answers_go_to_stdout(diarist, server, kept):
    kept(MOKA)
    server.will_say(
        ["Let me see.", call("recall", query="Colombia, ground for a moka pot")],
        "Colombia.\n\nAnything else?",
        call("remember", note="Ships to Rosario."),
        "Kept.",
    )
    ended = diarist("chat", OWNER, stdin="What do I buy?\r\n\n   \nShip it to Rosario")
    assert (ended.code, ended.out) == (0, "Colombia.\n\nAnything else?\nKept.\n")
    assert ended.err.splitlines()[1:] == [
        "Let me see.",
        'recall "Colombia, ground for a moka pot" -> 1 note, strong',
        'remember "Ships to Rosario." -> Saved. 2 notes about this customer.',
    ]
    assert [messages[-1] for messages in sent(server)][::2] == [
        ("user", "What do I buy?"),
        ("user", "Ship it to Rosario"),
    ]
    assert "Ships to Rosario." in diarist("notes", OWNER).out


def test_the_model_gets_the_briefing_the_page_and_what_it_is_told_to_be(diarist, server, tmp_path):
    diarist("page", OWNER, "--add", "Calls herself Lu.")
    told = tmp_path / "told.txt"
    told.write_text("You sell coffee.\n", encoding="utf-8")
    server.will_say("Hi.", "Hi.", "Hi.")
    diarist("chat", OWNER, stdin="Hi\n")
    diarist("chat", OWNER, "--instructions", "You are a ship.", stdin="Hi\n")
    diarist("chat", OWNER, "--instructions", f"@{told}", stdin="Hi\n")
    systems = [messages[0][1] for messages in sent(server)]
    for system, first in zip(systems, ["You are a helpful", "You are a ship.", "You sell coffee."], strict=True):
        assert system.startswith(first)
        assert "Calls herself Lu." in system
        assert "Today is 20" in system
    assert {tool["function"]["name"] for tool in server.chats[0]["tools"]} >= {"remember", "recall", "forget"}
    missing = diarist("chat", OWNER, "--instructions", f"@{tmp_path / 'none'}", stdin="Hi\n")
    assert (missing.code, "none: No such file" in missing.err) == (1, True)


def test_the_commands_inside(diarist, server, kept):
    moka, tea = kept(MOKA, "Likes tea.")
    server.will_say(call("recall", query="moka"), "Colombia.")
    lines = ["/why", "/help", "What do I buy?", "/why", f"/forget {tea.id} nope", "/forget", "/notes", "/page", "/nope"]
    ended = diarist("chat", OWNER, stdin="\n".join([*lines, "/quit", "never sent"]))
    assert (ended.code, ended.out, len(server.chats)) == (0, "Colombia.\n", 2)
    said = ended.err.splitlines()
    assert said[1] == "Nothing was recalled yet."
    assert any(line.startswith("/forget ID") for line in said)
    why = said[said.index('Asked for: "moka"') :]
    at = next(at for at, line in enumerate(why) if moka.id in line)
    parts = [float(line.split("\t")[1]) for line in takewhile(lambda line: line.startswith("\t"), why[at + 1 :])]
    assert float(why[at].split("\t")[0]) == pytest.approx(1 / (1 + math.exp(-sum(parts))), abs=0.02)
    assert f"Forgotten: {tea.id}" in said
    assert "diarist: no note with id 'nope' in this diary" in said
    assert said[-4:] == [
        "Which? /forget ID, with an id that /notes shows.",
        f"{moka.id}\t{moka.created_at:%Y-%m-%d}\t{MOKA}",
        f"No page about {OWNER}.",
        "There is no command /nope. /help lists them.",
    ]


def test_why_tells_of_what_was_found_then(diarist, server, kept):
    kept("Buys Colombia.")
    server.will_say([call("recall", query="what does she buy")], call("remember", note="Buys tea too."), "Both.")
    ended = diarist("chat", OWNER, stdin="And?\n/why\n")
    told = ended.err.partition("Asked for: ")[2]
    assert "Buys Colombia." in told
    assert "Buys tea too." not in told


def test_the_model_cannot_erase_where_nobody_can_be_asked(diarist, server, kept):
    kept(MOKA)
    server.will_say(call("notes"), forget_what_is_listed, "I could not.")
    ended = diarist("chat", OWNER, stdin="Forget it all.\ny\n")
    assert "forget -> Not done: forget needs a person's approval, and nobody can be aske..." in ended.err
    assert MOKA in diarist("notes", OWNER).out


def test_what_the_model_says_cannot_steer_the_terminal(diarist, server):
    server.will_say(["\x1b]0;x\x07", call("remember", note=HOSTILE)], f"Kept:\n\t{HOSTILE}\x9b2J")
    ended = diarist("chat", OWNER, "--session", "s", stdin=f"{HOSTILE}\n/notes\n/nope\x1b[31m\n")
    assert ended.out == "Kept:\n\tBuys \\u001b[31mred\\u001b[0m\\u0007 tea\\u202e backwards\\u200b\\u009b2J\n"
    for shown in (ended.err, diarist("sessions", OWNER, "--show", "s").out):
        assert "\\u001b" in shown
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u200b]", shown)


def test_bytes_that_are_no_text_do_not_end_the_conversation(diarist, server):
    server.will_say("What?", "Ah.")
    ended = diarist("chat", OWNER, stdin=b"\xff\xfe\nsorry\n")
    assert (ended.code, ended.out) == (0, "What?\nAh.\n")


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, ["DIARIST_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY"]),
        ({"DIARIST_MODEL": "m"}, ["OPENAI_BASE_URL", "OPENAI_API_KEY"]),
        ({"OPENAI_API_KEY": "k"}, ["DIARIST_MODEL"]),
        ({"DIARIST_MODEL": " ", "OPENAI_BASE_URL": "http://localhost:11434/v1"}, ["DIARIST_MODEL"]),
        ({"DIARIST_MODEL": "m", "OPENAI_BASE_URL": "localhost:11434"}, ["base_url"]),
    ],
)
def test_without_a_model_it_says_what_to_set(diarist, monkeypatch, place, given, named):
    for name in ("DIARIST_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    ended = diarist("chat", OWNER, stdin="Hi\n")
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)
    assert [
        name for name in ("DIARIST_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY", "base_url") if name in ended.err
    ] == named
    assert not place.exists()


def test_an_endpoint_that_fails_is_named_and_the_chat_goes_on(diarist, server):
    server.fail("unauthorized", "overflow (llama.cpp)", "ok")
    server.will_say("Back again.")
    ended = diarist("chat", OWNER, "--session", "s", stdin="One\nTwo\nThree\n")
    assert (ended.code, ended.out) == (1, "Back again.\n")
    assert "refused with 401: check OPENAI_API_KEY" in ended.err
    assert "begin a new one, or give --token-budget" in ended.err
    assert [role for role, _ in sent(server)[-1]] == ["system", "user", "user", "user"]


def test_a_conversation_that_outgrows_the_budget_goes_on_without_its_beginning(diarist, server):
    server.will_say("Yes. " * 2000, "Yes. " * 2000, "Still here.")
    ended = diarist("chat", OWNER, "--token-budget", "4500", stdin="One\nTwo\nThree\n")
    assert ended.out.splitlines()[-1] == "Still here."
    assert re.search(r"\(too long for 4,500 tokens: \d messages? left out, \d shortened\.", ended.err)
    assert sum(len(text) for _, text in sent(server)[-1]) < 4 * 4_500
    small = diarist("chat", OWNER, "--token-budget", "10", stdin="One\n")
    assert (small.code, small.out) == (1, "")


@pytest.mark.parametrize(
    "options", [("--session", "s", "--last"), ("--session", " "), ("--token-budget", "0"), ("--timeout", "0")]
)
def test_wrong_use(diarist, options):
    ended = diarist("chat", OWNER, *options, stdin="Hi\n")
    assert (ended.code, ended.out) == (2, "")


# --- at a terminal ----------------------------------------------------------------------------------------------------


def lines_are_edited():
    return importlib.util.find_spec("readline") is not None


class Terminal:
    """A person at a terminal of 80 columns: waits for what is shown, and types."""

    def __init__(self, server, place, *args, **environment):
        pty = pytest.importorskip("pty")
        names = ("DIARIST_", "OPENAI_", "NO_COLOR", "FORCE_COLOR", "INPUTRC")
        env = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        env |= {"DIARIST_MEMORY": str(place), "DIARIST_MODEL": "m", "OPENAI_BASE_URL": server.base_url}
        # The embeddings too come from the server: no model to load.
        env |= {"DIARIST_EMBEDDER": f"openai:m@{server.base_url}", "PYTHONUTF8": "1", "TERM": "xterm", "COLUMNS": "80"}
        self._fd, theirs = pty.openpty()
        # Not pty.fork: this process has threads. The child makes the terminal its own, so that Ctrl-C reaches it.
        start = (
            "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
            "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
        )
        command = [sys.executable, "-c", start, "-m", "diarist", *args]
        self._child = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=env | environment, start_new_session=True
        )
        os.close(theirs)
        self.shown = ""
        self._read = 0

    def until(self, text, seconds=30):
        """Waits for a text after the one waited for before; gives back what came in between."""
        end = time.monotonic() + seconds
        while text not in self.shown[self._read :]:
            ready, _, _ = select.select([self._fd], [], [], max(0, end - time.monotonic()))
            assert ready, f"no {text!r} in {self.shown!r}"
            try:
                part = os.read(self._fd, 65536)
            except OSError:
                part = b""
            assert part, f"ended without {text!r}: {self.shown!r}"
            self.shown += part.decode(errors="replace")
        at = self.shown.index(text, self._read) + len(text)
        between, self._read = self.shown[self._read : at], at
        return between

    def type(self, text):
        os.write(self._fd, text.encode())

    def ended(self, leaving):
        """Leaves, and gives back the exit code. A key that comes while the line editor is still setting up the terminal
        may be lost, as a person would see: it is pressed again after a while."""
        for _ in range(4):
            self.type(leaving)
            while select.select([self._fd], [], [], 8)[0]:
                try:
                    part = os.read(self._fd, 65536)
                except OSError:
                    part = b""
                if not part:
                    os.close(self._fd)
                    assert "Traceback" not in self.shown
                    return self._child.wait(30)
                self.shown += part.decode(errors="replace")
        self._child.kill()
        raise AssertionError(f"it does not end: {self.shown!r}")


def test_a_person_is_asked_before_the_model_erases(server, place, kept):
    [moka] = kept(MOKA)
    server.will_say(call("notes"), forget_what_is_listed, "As you wish.", call("notes"), forget_what_is_listed, "Gone.")
    person = Terminal(server, place, "chat", OWNER)
    assert f"m at {server.base_url}, 1 note about {OWNER}." in person.until("> ")
    answers = (
        ("Forget it.", "\r", "Not done: a person refused", "As you wish."),
        ("\x1b[A" if lines_are_edited() else "Forget it.", "y\r", "Erased 1.", "Gone."),  # the arrow brings it back
    )
    for prompt, answer, outcome, reply in answers:
        person.type(f"{prompt}\r")
        assert f"{moka.id} {MOKA}" in person.until("Let it? [y/N] ")
        person.type(answer)
        assert f"\x1b[2mforget -> {outcome}" in person.until(reply)
        person.until("> ")
    assert person.ended("\x04") == 0
    assert [text for role, text in sent(server)[-1] if role == "user"] == ["Forget it.", "Forget it."]
    with Memory(place, embedder=HashEmbedder()) as memory:
        assert memory.diary(OWNER).notes() == []


def test_ctrl_c_ends_the_answer_and_then_the_chat_and_the_session_goes_on(server, place):
    server.will_say("A long story. " * 200, "The end.")
    server.fail(Fault(drip=0.001), "ok")
    person = Terminal(server, place, "chat", OWNER, "--session", "s", NO_COLOR="1")
    person.until("> ")
    person.type("Tell me a story.\r")
    person.until("A long")
    person.type("\x03")
    person.until("Interrupted. What was said is kept.\r\n")
    person.until("> ")
    person.type("And the end?\r")
    person.until("The end.\r\n")
    person.until("> ")
    assert person.ended("\x03") == 0
    assert person.shown.endswith("--last or --session s goes on with it.\r\n")
    assert "\x1b[2m" not in person.shown
    with Memory(place, embedder=HashEmbedder()) as memory:
        said = [alone(each["content"]) for each in memory.diary(OWNER).session("s").messages]
    assert said == ["Tell me a story.", "And the end?", "The end."]
