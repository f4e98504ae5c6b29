"""The command line: what each command prints where, and with which exit code it ends."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from diarist import Memory
from diarist.cli import commands, importing, show
from diarist.testing import HashEmbedder

OWNER = "c-2291"
MOKA = "Buys 1 kg of Colombia, ground for a moka pot."


def process(*args, place, stdin=b"", **environment):
    """The command as users run it, in a process of its own; with the embedder that loads fastest."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DIARIST_", "PYTHONIO", "NO_COLOR", "FORCE_COLOR"))}
    run = subprocess.run(
        [sys.executable, "-m", "diarist", *map(str, args)],
        input=stdin,
        env={**env, "DIARIST_MEMORY": str(place), "DIARIST_EMBEDDER": "use", **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"Traceback" not in run.stderr, run.stderr.decode()
    return run


@pytest.fixture
def kept(place):
    """Fills the memory through the library and gives back the notes."""

    def keep(*texts, owner=OWNER, **about):
        with Memory(str(place), embedder=HashEmbedder()) as memory:
            return [memory.diary(owner).remember(text, **about) for text in texts]

    return keep


# --- remember, recall, notes, edit, forget, owners --------------------------------------------------------------------


def test_another_owners_notes_are_out_of_reach(diarist, kept):
    [note] = kept(MOKA)
    assert diarist("recall", "other", "moka pot").code == 1
    assert diarist("notes", "other").code == 1
    for command in (["edit", "other", note.id, "Buys tea."], ["forget", "other", note.id]):
        ended = diarist(*command)
        assert (ended.code, ended.out) == (1, "")
        assert "Colombia" not in ended.err
    assert MOKA in diarist("notes", OWNER).out


def test_what_one_process_keeps_the_next_one_finds(place):
    saved = process("remember", OWNER, MOKA, place=place, DIARIST_EMBEDDER="")
    assert saved.returncode == 0
    assert saved.stderr.decode().splitlines()[-1] == f"Saved. 1 note about {OWNER}."
    found = process("recall", OWNER, "Is it ground for a moka pot?", "--json", place=place, DIARIST_EMBEDDER="")
    answer = json.loads(found.stdout)
    assert found.returncode == 0
    assert answer["hits"][0]["note"]["id"] == saved.stdout.decode().strip()
    assert answer["verdict"] in ("strong", "weak")


def test_remember_prints_the_id_and_says_how_many_there_are(diarist):
    first = diarist("remember", OWNER, MOKA)
    second = diarist("remember", OWNER, "Ships to Rosario.")
    assert first.code == second.code == 0
    assert second.err == f"Saved. 2 notes about {OWNER}.\n"
    assert first.out.strip() != second.out.strip()
    assert len(first.out.splitlines()) == 1


def test_remember_takes_everything_the_library_takes(diarist):
    old = diarist("remember", OWNER, "Ships to Rosario.").out.strip()
    options = [
        "--replaces",
        old,
        "--happened-at",
        "2026-03-01",
        "--expires-at",
        "2099-01-01T00:00Z",
        "--source",
        "mail",
    ]
    options += [
        "--origin",
        "operator",
        "--tag",
        "address",
        "--tag",
        "moved",
        "--key",
        "k1",
        "--timezone",
        "Europe/Paris",
    ]
    note = diarist("remember", OWNER, "Ships to Córdoba.", *options, "--json").json
    assert note["replaces"] == [old]
    assert note["happened_at"] == "2026-02-28T23:00:00+00:00"
    assert note["expires_at"] == "2099-01-01T00:00:00+00:00"
    assert (note["source"], note["origin"], note["tags"]) == ("mail", "operator", ["address", "moved"])
    assert diarist("remember", OWNER, "Ships to Córdoba.", "--key", "k1").out.strip() == note["id"]
    assert [n["id"] for n in diarist("notes", OWNER, "--json").json_lines] == [note["id"]]
    assert {n["id"] for n in diarist("notes", OWNER, "--all", "--json").json_lines} == {note["id"], old}


def test_remember_reads_stdin(diarist):
    diarist("remember", OWNER, "-", stdin="Ships to Córdoba.\n")
    assert diarist("notes", OWNER, "--json").json_lines[0]["text"] == "Ships to Córdoba."


def test_recall_in_a_pipe_is_tab_separated(diarist, kept):
    kept(MOKA, happened_at="2026-03-02T10:00:00Z", source="whatsapp")
    [note] = diarist("notes", OWNER, "--json").json_lines
    ended = diarist("recall", OWNER, MOKA)
    score, *rest = ended.out.rstrip("\n").split("\t")
    assert rest == ["2026-03-02", note["id"], MOKA, "from whatsapp"]
    assert 0 < float(score) <= 1
    assert "match" in ended.err


def test_recall_in_json_is_one_document_with_its_reasons(diarist, kept):
    kept(MOKA)
    answer = diarist("recall", OWNER, "moka pot", "--json").json
    assert answer.keys() == {"question", "verdict", "notices", "hits"}
    [hit] = answer["hits"]
    assert hit["note"]["text"] == MOKA
    assert {part["name"] for part in hit["why"]}


def test_recall_why_shows_the_parts(diarist, kept):
    kept(MOKA)
    parts = diarist("recall", OWNER, "moka pot", "--json").json["hits"][0]["why"]
    lines = diarist("recall", OWNER, "moka pot", "--why").out.splitlines()
    assert [line.split("\t")[1:3] for line in lines[1:]] == [[f"{p['value']:+.2f}", p["name"]] for p in parts]


@pytest.mark.timeout(60)
def test_recall_filters(diarist, kept):
    kept("Ships to Rosario.", happened_at="2025-05-01T12:00:00Z", tags=["address"])
    kept("Ships to Córdoba.", happened_at="2026-03-01T12:00:00Z", tags=["address", "now"])

    def found(*options):
        return sorted(h["note"]["text"] for h in diarist("recall", OWNER, "ships to", *options, "--json").json["hits"])

    assert found() == ["Ships to Córdoba.", "Ships to Rosario."]
    assert found("--since", "2026-01-01") == ["Ships to Córdoba."]
    assert found("--before", "2026-01-01") == ["Ships to Rosario."]
    assert found("--as-of", "2025-06-01") == ["Ships to Rosario."]
    assert found("--tag", "address", "--tag", "now") == ["Ships to Córdoba."]
    assert len(found("--limit", "1")) == 1
    assert found("--min-score", "1") == []


def test_recall_shows_replaced_notes_only_when_asked(diarist):
    old = diarist("remember", OWNER, "Ships to Rosario.").out.strip()
    diarist("remember", OWNER, "Ships to Córdoba.", "--replaces", old)
    assert "Rosario" not in diarist("recall", OWNER, "ships to").out
    line = next(
        x for x in diarist("recall", OWNER, "ships to", "--include-replaced").out.splitlines() if "Rosario" in x
    )
    assert line.endswith("\treplaced")


def test_nothing_saved_is_said_and_exits_1(diarist, kept):
    assert diarist("recall", OWNER, "dentist")[:2] == (1, "Nothing saved about that.\n")
    kept(MOKA)
    assert diarist("recall", OWNER, "Which dentist?")[:2] == (1, "Nothing saved about that.\n")
    ended = diarist("recall", OWNER, "Which dentist?", "--json")
    assert (ended.code, ended.json["verdict"]) == (1, "nothing")


def test_an_empty_memory_has_no_notes_and_no_owners_and_stays_uncreated(diarist, place):
    assert diarist("notes", OWNER) == (1, "", f"No notes about {OWNER}.\n")
    assert diarist("owners") == (1, "", f"No diaries in {place}.\n")
    assert not place.exists()


def test_owners(diarist, kept):
    kept(MOKA)
    kept(MOKA, owner="../x\ty")
    assert sorted(diarist("owners").out.splitlines()) == ["../x\\ty", OWNER]
    assert sorted(o["owner"] for o in diarist("owners", "--json").json_lines) == ["../x\ty", OWNER]


def test_a_copied_folder_is_named_and_is_nobodys_diary(diarist, kept, place):
    kept(MOKA)
    shutil.copytree(place / OWNER, place / "ben")
    ended = diarist("owners")
    assert (ended.code, ended.out) == (1, f"{OWNER}\n")
    assert f"ben cannot be opened: {place / 'ben' / 'diary.db'}: is the diary of another owner" in ended.err
    assert "export and import --rename" in ended.err
    assert [line["owner"] for line in diarist("owners", "--json").json_lines] == [OWNER]
    examined = diarist("doctor", "ben")
    assert (examined.code, examined.out.count("is the diary of another owner")) == (1, 1)
    backup = diarist("backup", place.parent / "copy")
    assert (backup.code, "is the diary of another owner" in backup.err) == (1, True)
    assert not (place.parent / "copy").exists()
    assert diarist("erase", "ben", "--yes").code == 0
    assert diarist("owners") == (0, f"{OWNER}\n", "")


def test_r56_the_page_of_a_copied_folder_is_not_shown_and_not_written(diarist, kept, place):
    kept(MOKA)
    (place / OWNER / "page.md").write_text("- Her name is Ana.\n", encoding="utf-8")
    shutil.copytree(place / OWNER, place / "ben")
    for ended in (diarist("page", "ben"), diarist("page", "ben", "--add", "x")):
        assert (ended.code, ended.out) == (1, "")
        assert "is the diary of another owner" in ended.err
        assert "Ana" not in ended.err
    assert (place / "ben" / "page.md").read_text(encoding="utf-8") == "- Her name is Ana.\n"


def test_edit_corrects_and_forget_erases(diarist, kept):
    [note, other] = kept(MOKA, "Ships to Rosario.")
    assert diarist("edit", OWNER, note.id, "Buys 2 kg of Colombia.", "--json").json["text"] == "Buys 2 kg of Colombia."
    ended = diarist("forget", OWNER, note.id, "unknown", other.id)
    assert ended.code == 1
    assert "unknown" in ended.err
    assert diarist("notes", OWNER).code == 1


def test_two_processes_see_each_other(place, kept):
    """RW-037: what one process writes, another one that is already open sees."""
    with Memory(str(place), embedder=HashEmbedder()) as memory:
        diary = memory.diary(OWNER)
        diary.remember("Ships to Rosario.")
        diary.recall("ships")
        written = process("remember", OWNER, MOKA, place=place)
        note_id = written.stdout.decode().strip()
        assert MOKA in [hit.note.text for hit in diary.recall("moka pot")]
        process("edit", OWNER, note_id, "Buys tea for the samovar.", place=place)
        assert "Buys tea for the samovar." in [hit.note.text for hit in diary.recall("samovar")]
        process("forget", OWNER, note_id, place=place)
        assert [note.text for note in diary.notes()] == ["Ships to Rosario."]
        assert [hit.note.text for hit in diary.recall("samovar")] == ["Ships to Rosario."]


# --- import -----------------------------------------------------------------------------------------------------------


def test_import_takes_every_field(diarist, tmp_path):
    file = tmp_path / "notes.jsonl"
    records = [
        {
            "text": MOKA,
            "happened_at": "2026-03-02T10:00:00+01:00",
            "source": "mail",
            "origin": "operator",
            "tags": ["order"],
        },
        {"text": "Ships to Córdoba.", "expires_at": "2099-01-01", "key": "a", "source": None},
    ]
    file.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    ended = diarist("import", OWNER, file)
    assert ended == (0, "", f"Saved 2 notes about {OWNER}, 2 of them new. 0 lines refused.\n")
    moka, address = sorted(diarist("notes", OWNER, "--json").json_lines, key=lambda note: note["text"])
    assert (moka["happened_at"], moka["source"]) == ("2026-03-02T09:00:00+00:00", "mail")
    assert (moka["origin"], moka["tags"]) == ("operator", ["order"])
    assert address["expires_at"] == "2099-01-01T00:00:00+00:00"


def test_import_again_adds_nothing_and_changes_nothing(diarist, tmp_path):
    file = tmp_path / "notes.jsonl"
    file.write_text("".join(json.dumps({"text": f"Note number {i}."}) + "\n" for i in range(600)))
    assert diarist("import", OWNER, file).code == 0
    first = diarist("notes", OWNER, "--all", "--json").out
    assert ", 0 of them new." in diarist("import", OWNER, file).err
    assert diarist("notes", OWNER, "--all", "--json").out == first
    assert len(first.splitlines()) == 600


def test_import_names_bad_lines_and_keeps_the_others(diarist):
    good = [json.dumps({"text": f"Good {i}."}).encode() for i in range(300)]
    bad = {
        3: b"not json",
        7: b'{"text": "   "}',
        100: b'{"text": "half a face \\ud83d"}',
        101: b'{"text": 5}',
        102: b"[1]",
        103: b'{"note": "x"}',
        104: b'{"text": "x", "happened_at": "yesterday"}',
        105: b'{"text": "caf\xe9"}',
        280: b'{"text": "x", "origin": "somebody"}',
        281: b'{"text": "x", "replaces": ["unknown"]}',
        282: b"[" * 100_000,
    }
    lines, rest = [], iter(good)
    while len(lines) < len(good) + len(bad):
        lines.append(bad.get(len(lines) + 1) or next(rest))
    ended = diarist("import", OWNER, "-", "--json", stdin=b"\n".join(lines))
    assert ended.code == 1
    assert ended.json["saved"] == 300
    assert sorted(r["line"] for r in ended.json["refused"]) == sorted(bad)
    assert all(len(r["reason"]) > 8 for r in ended.json["refused"])
    assert ended.err.count("diarist: line ") == len(bad) + 1  # and once, that "note" is no field
    assert len(diarist("notes", OWNER, "--json").out.splitlines()) == 300


def test_import_lives_with_bom_blank_lines_and_crlf(diarist):
    data = '\ufeff{"text": "One."}\r\n\r\n   \r\n{"text": "Two."}\r\n'
    assert diarist("import", OWNER, "-", stdin=data).code == 0
    assert sorted(n["text"] for n in diarist("notes", OWNER, "--json").json_lines) == ["One.", "Two."]


def test_import_says_once_which_fields_it_leaves_out(diarist):
    data = "".join(json.dumps({"text": f"Note {i}.", "speaker": "Ana", "time": None}) + "\n" for i in range(5))
    ended = diarist("import", OWNER, "-", stdin=data)
    assert ended.code == 0
    assert ended.err.count('"speaker" is not one of text, happened_at') == 1
    assert ended.err.count('"time" is not one of') == 1


@pytest.mark.parametrize(
    ("zone", "time_", "expected"),
    [
        ((), "2026-03-01T09:00:00", "2026-03-01T09:00:00+00:00"),
        (("--timezone", "America/Lima"), "2026-03-15T21:30:00", "2026-03-16T02:30:00+00:00"),
        (("--timezone", "America/Lima"), "2026-03-15T21:30:00Z", "2026-03-15T21:30:00+00:00"),
        (("--timezone", "Europe/Paris"), "2026-03-01T09:00:00+05:00", "2026-03-01T04:00:00+00:00"),
    ],
)
def test_rw_008_import_places_times_without_an_offset(diarist, zone, time_, expected):
    line = json.dumps({"text": "The dentist called.", "happened_at": time_})
    assert diarist("import", OWNER, "-", *zone, stdin=line).code == 0
    assert diarist("notes", OWNER, "--json").json_lines[0]["happened_at"] == expected


def test_import_is_streamed_in_batches(diarist, monkeypatch):
    monkeypatch.setattr(importing, "BATCH", 2)
    data = "".join(json.dumps({"text": f"Note {i}."}) + "\n" for i in range(5))
    assert diarist("import", OWNER, "-", stdin=data).err.startswith("Saved 5 notes")


def test_import_saves_all_texts_before_the_first_vector(diarist, place, embedder, monkeypatch):
    monkeypatch.setattr(importing, "BATCH", 2)
    data = "".join(json.dumps({"text": f"Note {i}."}) + "\n" for i in range(6))
    made, there = embedder[0].embed_notes, []

    def watched(texts):
        with Memory(place, embedder=HashEmbedder()) as memory:
            there.append(memory.diary(OWNER).count())
        return made(texts)

    monkeypatch.setattr(embedder[0], "embed_notes", watched)
    assert diarist("import", OWNER, "-", stdin=data).code == 0
    assert there == [6]


def test_import_interrupted_at_the_vectors_has_saved_all_and_goes_on_from_there(diarist, place, embedder, monkeypatch):
    monkeypatch.setattr("diarist.diary._BATCH", 2)
    data = "".join(json.dumps({"text": f"Note {i}."}) + "\n" for i in range(7))
    made, left = embedder[0].embed_notes, [2]

    def interrupted(texts):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return made(texts)

    monkeypatch.setattr(embedder[0], "embed_notes", interrupted)
    ended = diarist("import", OWNER, "-", stdin=data)
    assert ended == (130, "", "Stopped. 7 notes saved; diarist reembed makes the vectors that are missing.\n")
    with Memory(place, embedder=HashEmbedder()) as memory:
        diary = memory.diary(OWNER)
        assert (diary.count(), diary.pending) == (7, 3)
        assert diary.catch_up() == (3, 0)


def test_import_has_one_bar_that_only_grows(diarist, monkeypatch, tmp_path):
    file = tmp_path / "notes.jsonl"
    file.write_text("".join(json.dumps({"text": f"Note number {i}."}) + "\n" for i in range(700)))
    shares, told = [], []

    @contextlib.contextmanager
    def bar():
        yield lambda done, total, text: (shares.append(done / total), told.append(text))

    monkeypatch.setattr("diarist.cli.moving.progress_bar", bar)
    assert diarist("import", OWNER, file).code == 0
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert told[0] == "256 notes saved"
    assert told[-1] == "700 notes saved, 700 of 700 vectors"


def test_import_from_nowhere(diarist, tmp_path):
    ended = diarist("import", OWNER, tmp_path / "none.jsonl")
    assert (ended.code, ended.out) == (1, "")
    assert "none.jsonl" in ended.err
    assert "memory" not in ended.err.lower()


# --- wrong use, errors, streams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ["remember", OWNER],
        ["nothing-like-it"],
        ["remember", OWNER, "  "],
        ["remember", "  ", MOKA],
        ["remember", OWNER, MOKA, "--happened-at", "soon"],
        ["remember", OWNER, MOKA, "--origin", "somebody"],
        ["remember", OWNER, MOKA, "--timezone", "Mars/Base"],
        ["recall", OWNER, "moka", "--limit", "0"],
        ["recall", OWNER, "moka", "--min-score", "7"],
        ["recall", OWNER, "   "],
        ["--memory", "", "owners"],
    ],
)
def test_wrong_use_exits_2_with_a_reason(diarist, args, place):
    ended = diarist(*args)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.strip()
    assert not place.exists()


def test_an_error_is_one_line_unless_debugging(place, monkeypatch):
    place.write_text("a file stands where the folder should be")
    ended = process("remember", OWNER, MOKA, place=place)
    assert (ended.returncode, ended.stdout) == (1, b"")
    [line] = ended.stderr.decode().splitlines()
    assert line.startswith("diarist: ")
    assert str(place) in line
    debug = subprocess.run(
        [sys.executable, "-m", "diarist", "edit", OWNER, "x", "  "],
        env={**os.environ, "DIARIST_MEMORY": str(place), "DIARIST_DEBUG": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" in debug.stderr


def test_the_default_place_is_the_users_data_folder(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "diarist", "owners"],
        env={**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data"), "DIARIST_MEMORY": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert str(tmp_path) in run.stderr
    assert list(tmp_path.iterdir()) == []


HARD = "party 🎉👨‍👩‍👧 at 8 ✓ [bold]x[/bold] \x1b[31mred\x1b[0m \x9b2J \u202egnp.exe end\nnew line"


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
@pytest.mark.parametrize(
    "command", [["notes", OWNER], ["notes", OWNER, "--json"], ["recall", OWNER, "party"], ["--help"]]
)
def test_rw_017_no_console_is_too_narrow(place, kept, encoding, command):
    kept(HARD)
    run = process(*command, place=place, PYTHONIOENCODING=encoding)
    assert run.returncode == 0, run.stderr
    text = run.stdout.decode(encoding)
    if "--json" in command:
        assert json.loads(text)["text"] == HARD


def test_rw_017_emoji_come_back_whole_and_half_an_emoji_is_refused(diarist):
    diarist("remember", OWNER, HARD)
    assert diarist("notes", OWNER, "--json").json_lines[0]["text"] == HARD
    assert "👨‍👩‍👧" in diarist("notes", OWNER).out
    assert diarist("remember", OWNER, "half \ud83d").code == 2


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_what_is_stored_cannot_steer_the_terminal(diarist, kept, options):
    kept(HARD, source="\x1b]0;title\x07")
    for command in (["notes", OWNER], ["recall", OWNER, "party at 8 x red end new line"]):
        out = diarist(*command, *options).out
        assert len(out.splitlines()) == 1
        assert not set(out) & set("\x1b\x9b\x07\u202e")
        assert "[bold]x[/bold]" in out
        assert "\\u001b" in out


def test_no_color_in_a_pipe(place, kept):
    kept(MOKA)
    for command in (["notes", OWNER], ["owners"], ["notes", OWNER, "--json"]):
        assert b"\x1b" not in process(*command, place=place).stdout


def test_a_reader_that_leaves_early_is_no_error(place, kept):
    kept(*(f"Note number {i}: {'x' * 900}" for i in range(300)))
    run = subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -m diarist notes {OWNER} | head -1; exit ${{PIPESTATUS[0]}}'],
        env={**os.environ, "DIARIST_MEMORY": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stderr == ""
    assert len(run.stdout.splitlines()) == 1
    assert run.returncode == 1


def test_ctrl_c_is_quiet(place):
    reads, writes = os.pipe()
    waiting = subprocess.Popen(
        [sys.executable, "-m", "diarist", "import", OWNER, "-"],
        env={**os.environ, "DIARIST_MEMORY": str(place)},
        stdin=reads,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.write(writes, b'{"text": "Has a moka pot."}\n')
    while struct.unpack("i", fcntl.ioctl(reads, termios.FIONREAD, b"\0" * 4)) != (0,):
        time.sleep(0.01)  # until the command has read it, and waits for more
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=60)
    os.close(reads)
    os.close(writes)
    assert (waiting.returncode, out, err) == (130, b"", b"")


# --- a terminal -------------------------------------------------------------------------------------------------------


def terminal(*args, place, **environment):
    """What a terminal of 80 columns is sent."""
    pty = pytest.importorskip("pty")
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(DIARIST_MEMORY=str(place), TERM="xterm-256color", COLUMNS="80", LINES="24", **environment)
        os.execv(sys.executable, [sys.executable, "-m", "diarist", *map(str, args)])
    shown = b""
    while True:
        try:
            part = os.read(fd, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.waitpid(pid, 0)
    os.close(fd)
    return shown


def test_a_terminal_gets_bars_and_color_and_still_nothing_raw(place, kept):
    kept(HARD, MOKA)
    shown = terminal("recall", OWNER, "party at 8", place=place, DIARIST_EMBEDDER="use", PYTHONIOENCODING="utf-8")
    assert "█".encode() in shown
    assert b"\x1b[" in shown
    assert b"\x1b[31mred" not in shown
    assert b"[bold]x[/bold]" in shown


@pytest.mark.parametrize(
    ("encoding", "expected"), [("utf-8", "████░░░░░░"), ("cp1252", "####......"), ("ascii", "####......")]
)
def test_bars_are_ascii_where_blocks_cannot_be_written(encoding, expected):
    assert show.bar(0.4, io.TextIOWrapper(io.BytesIO(), encoding=encoding)) == expected


def test_no_color_is_respected(place, kept):
    kept(MOKA)
    shown = terminal("notes", OWNER, place=place, NO_COLOR="1")
    assert MOKA.encode() in shown
    assert b"\x1b[" not in shown  # not dimmed either


class Screen(io.StringIO):
    """A terminal as far as the tables can tell."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize("columns", [25, 40, 46, 64, 80])
def test_no_terminal_is_too_narrow_for_an_id(diarist, kept, monkeypatch, columns):
    [note] = kept("Likes tea, and a text about it that is longer than a line.")
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in (["notes", OWNER], ["recall", OWNER, "likes tea, a long text", "--why"]):
        screen = Screen()
        monkeypatch.setattr(sys, "stdout", screen)
        assert diarist(*command).code == 0
        shown = screen.getvalue()
        assert note.id in shown
        longest = max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in shown.splitlines())
        assert longest <= columns or columns < len(note.id)


# --- help, version, completion, demo ----------------------------------------------------------------------------------


def test_version(diarist):
    from importlib.metadata import version

    assert diarist("--version") == (0, f"diarist {version('diarist')}\n", "")


def test_every_command_has_help(diarist):
    import typer

    for name in typer.main.get_command(commands.app).commands:
        assert "Usage" in diarist(name, "--help").out


def test_completion_is_offered(place):
    run = process("--show-completion", "bash", place=place)
    run = process(place=place, _DIARIST_COMPLETE="complete_bash", COMP_WORDS="diarist rec", COMP_CWORD="1")
    assert run.stdout.split() == [b"recall"]


def test_demo_shows_what_it_says_in_two_processes(place, tmp_path):
    before = os.times()
    run = process("demo", "--keep", tmp_path / "kept", place=place)
    out = run.stdout.decode()
    assert run.returncode == 0, run.stderr.decode()
    assert out.splitlines()[0].endswith("no key, no server, no network. Everything stays on this machine.")
    assert "Nothing saved about that." in out
    assert "seconds" in out
    after = os.times()
    assert (after.children_user + after.children_system) - (before.children_user + before.children_system) < 15
    assert not place.exists()
    assert process("notes", OWNER, place=tmp_path / "kept").returncode == 0
    again = process("demo", "--keep", tmp_path / "kept", place=place)
    assert again.returncode == 2


def test_demo_fails_when_a_note_is_not_found(monkeypatch, tmp_path, capsys):
    from diarist import demo

    folder = str(tmp_path / "memory")
    monkeypatch.setattr(demo, "SAID", ("Likes tea.",))
    assert demo.day_1(folder) == 0
    assert demo.day_2(folder) == 1
    assert "Expected" in capsys.readouterr().err
