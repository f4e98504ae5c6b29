"""The farm: a recorded or live run in a real browser, its state, `diarist replay`, and the export to one file."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from browsing import browser, faults, page_of
from diarist import Agent, Memory, demo
from diarist.events import DayClosed, as_data, console, recorder, replay
from diarist.servers.replay import Replay, as_lines, as_page
from diarist.testing import FixedClock, HashEmbedder
from serving import of, serving
from test_http import CSP

HOSTILE = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)> \u2028 'x'"


@pytest.fixture(scope="module")
def chromium():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """The demo's two days with a hashing embedder: a customer orders, then wants the same again."""
    place = tmp_path_factory.mktemp("run")
    with Memory(place / "memory", embedder=HashEmbedder(), clock=FixedClock(demo.DAY_1)) as memory:
        for day, said in (("day-1", demo.SAID[0]), ("day-2", demo.SAME_AGAIN)):
            diary, books = memory.diary(demo.OWNER), demo.Books(place)
            agent = Agent(demo.Shopkeeper(), demo.SHOP, [demo.order_tool(books, day), *diary.tools()])
            with recorder(place / "run.jsonl") as record:
                agent.events.subscribe(record)
                session = diary.session(day)
                agent.run(said, session=session)
                session.end()
                agent.events.emit(DayClosed, session=day, messages=len(session.messages))
    return place / "run.jsonl"


@pytest.fixture(scope="module")
def events(recording):
    return [as_data(event) for event in replay(recording)]


@contextmanager
def shown(lines):
    """The run behind an address, as `diarist replay` serves it."""
    served = Replay(lines)
    thread = threading.Thread(target=served.serve)
    thread.start()
    try:
        yield served.url
    finally:
        served.stop()
        thread.join()


@pytest.fixture(scope="module")
def url(recording):
    with shown(as_lines(replay(recording))) as address:
        yield address


@contextmanager
def farm(chromium, url, n=None, **options):
    with page_of(chromium, **{"reduced_motion": "reduce", **options}) as page:
        page.goto(url)
        page.locator("#place", has_text=re.compile("[1-9]")).wait_for()
        if n is not None:
            scrub(page, n)
        yield page


def scrub(page, n):
    page.locator("#scrub").evaluate("(scrub, n) => { scrub.value = n; scrub.dispatchEvent(new Event('input')); }", n)


def states(page, events):
    """What farm-state.js makes of the first 0, 1, 2... of these events."""
    return page.evaluate(
        """async events => {
            const { state } = await import("./farm-state.js");
            return [...Array(events.length + 1).keys()].map(n => state(events, n));
        }""",
        events,
    )


def at(events, kind, which=0):
    """How many events there are up to and with that one."""
    return [number for number, event in enumerate(events, 1) if event["event"] == kind][which]


# -- the state ---------------------------------------------------------------------------------------------------------


def test_r70_the_state_is_a_pure_function_of_the_events(chromium, url, events):
    """The same events give the same state, the events stay as they are, and one event more is one step more."""
    with farm(chromium, url) as page:
        said = page.evaluate(
            """async events => {
                const { state, after, beginning } = await import("./farm-state.js");
                const before = JSON.stringify(events);
                let steps = beginning();
                const same = events.every((event, n) => {
                    const held = JSON.stringify(steps);
                    const next = after(steps, event);
                    const pure = JSON.stringify(steps) === held;
                    steps = next;
                    return pure && JSON.stringify(steps) === JSON.stringify(state(events, n + 1));
                });
                return [same, JSON.stringify(events) === before];
            }""",
            events,
        )
    assert said == [True, True]


def test_r71_folds_grow_with_the_messages_the_night_takes_them_and_the_diary_stays(chromium, url, events):
    with farm(chromium, url) as page:
        told = states(page, events)
    assert (told[0]["day"], told[0]["phase"], told[0]["folds"]) == (0, "before", [])
    for event, before, after in zip(events, told, told[1:], strict=False):
        if event["event"] == "SessionSaved":
            assert len(after["folds"]) == len(before["folds"]) + 1
        assert after["total"] >= before["total"], "nothing takes a note away"
    night = at(events, "DayClosed")
    assert len(told[night - 1]["folds"]) == events[night - 1]["messages"] == told[night]["emptied"] > 8
    assert (told[night]["phase"], told[night]["folds"]) == ("night", [])
    assert told[night]["diary"] == told[night - 1]["diary"]
    assert [leaf["text"] for leaf in told[night]["diary"]] == [
        event["text"] for event in events if event["event"] == "NoteRemembered"
    ]
    morning = told[night + 1]
    assert (morning["day"], morning["phase"], morning["folds"], morning["total"]) == (2, "day", [], 3)


def test_r71_the_ranking_has_every_score_and_which_were_handed_on_and_the_roaster_its_order(chromium, url, events):
    with farm(chromium, url) as page:
        told = states(page, events)
    asked = at(events, "Recalled")
    recalled, ranking = events[asked - 1], told[asked]["ranking"]
    assert [(note["id"], note["score"]) for note in ranking["notes"]] == [
        (note, score) for note, _, score in recalled["candidates"]
    ]
    assert {note["id"] for note in ranking["notes"] if note["handedOn"]} == set(recalled["handed_on"])
    started = next(n for n, event in enumerate(events, 1) if event.get("name") == "place_order")
    assert "a kilo of Colombia" in told[started]["roaster"]["text"]
    ended = next(n for n in range(started + 1, len(events)) if events[n - 1]["event"] == "ToolEnded")
    assert [told[started]["orders"], told[ended]["orders"], told[ended]["roaster"]["done"]] == [0, 1, True]


def test_a_session_that_goes_on_brings_its_folds_back(chromium, url, events):
    again = {**events[0], "session": "day-1", "messages": 10, "prompt": "Which number?"}
    long_ago = {**again, "session": "before the recording", "messages": 4}
    with farm(chromium, url) as page:
        first, second = (states(page, [*events, each])[-1] for each in (again, long_ago))
    assert [len(first["folds"]), first["folds"][0]["text"]] == [10, demo.SAID[0]]
    assert [fold["role"] for fold in second["folds"]] == ["earlier"] * 4


def test_a_run_without_a_session_grows_folds_too(chromium, url, events):
    alone = [
        {**event, "session": None}
        for event in events
        if event["event"] not in ("SessionSaved", "DayClosed", "Recalled")
    ]
    with farm(chromium, url) as page:
        assert [fold["role"] for fold in states(page, alone[: at(alone, "RunEnded")])[-1]["folds"]] == (
            ["user", *["assistant", "tool"] * 4, "assistant"]
        )


def test_no_event_whatever_it_holds_breaks_the_farm(chromium, url, events):
    """Each field of each event by turns of another kind, and names that are JavaScript's own."""
    odd = [None, -1, "__proto__", [7], [[]], {"a": {}}]
    kinds = {event["event"]: event for event in events}
    bent = [{**event, field: value} for event in kinds.values() for field in event for value in odd]
    bent += [{"event": name} for name in ("constructor", "__proto__", "toString", "Unknown", *kinds)]
    bent = [event for event in bent if isinstance(event["event"], str)]
    with farm(chromium, url) as page:
        days = page.evaluate(
            """async events => {
                const { after, beginning } = await import("./farm-state.js");
                return events.reduce(after, beginning()).day;
            }""",
            bent,
        )
        assert days > 1
        page.locator("#file").set_input_files(
            {"name": "x", "mimeType": "text/plain", "buffer": "\n".join(map(json.dumps, bent)).encode()}
        )
        page.locator("#place", has_text=f"of {len(bent):,}").wait_for()
        for n in range(1, len(bent), 23):
            scrub(page, n)


# -- the page ----------------------------------------------------------------------------------------------------------


def test_r70_it_plays_to_the_end_and_shows_what_happened(chromium, url, events):
    """R70, R72: with time at our command; the animations run, and the seed's phrase is what is played."""
    with page_of(chromium, reduced_motion="no-preference") as page:
        page.clock.install()
        page.goto(url)
        page.get_by_text(f"event 0 of {len(events)}").wait_for()
        page.get_by_role("button", name="Play").click()
        page.clock.run_for(4_000)
        assert page.get_by_role("button", name="Pause").is_visible()
        assert page.evaluate("document.getAnimations().length") > 5
        page.get_by_role("button", name="Pause").click()
        place = page.locator("#place").inner_text()
        page.clock.fast_forward(60_000)
        assert page.locator("#place").inner_text() == place
        page.get_by_label("Speed").select_option("4")
        page.get_by_role("button", name="Play").click()
        for _ in events:
            page.clock.fast_forward(3_000)
        page.get_by_text(f"event {len(events)} of {len(events)}").wait_for()
        assert page.get_by_role("button", name="Play again").is_visible()
        assert page.locator("#scene").get_attribute("data-phase") == "night"
        told = page.locator("#transcript").inner_text()
        for said in (
            "Day 1",
            demo.SAID[0],
            "Order 1 is placed.",
            "The Eraser Spectre empties",
            "Day 2",
            demo.SAME_AGAIN,
        ):
            assert said in told
        assert page.locator("#leaves li").count() == 3
        assert page.locator("#folds li").count() == 0
        assert "Empty: the Eraser Spectre took" in page.locator("#about-bandoneon").inner_text()


def test_r73_steps_scrubbing_and_the_keyboard_lead_to_the_same_picture(chromium, url, events):
    with farm(chromium, url) as page:
        page.locator("body").press("ArrowRight")
        page.locator("body").press("ArrowRight")
        assert page.get_by_text(f"event 2 of {len(events)}").is_visible()
        page.locator("body").press("ArrowLeft")
        page.get_by_role("button", name="One step on").click()
        stepped = at(events, "NoteRemembered")
        while not page.get_by_text(f"event {stepped} of").is_visible():
            page.get_by_role("button", name="One step on").click()
        walked = picture(page)
        scrub(page, len(events))
        scrub(page, stepped)
        assert picture(page) == walked
        page.locator("body").press(" ")
        assert page.get_by_role("button", name="Pause").is_visible()
        page.locator("#scrub").focus()
        page.keyboard.press("End")
        assert page.get_by_text(f"event {len(events)} of").is_visible()
        assert page.get_by_role("button", name="Play again").is_visible()


def picture(page):
    return [page.locator(f"#{part}").inner_html() for part in ("bellows", "writing", "parcels", "transcript", "folds")]


def test_r73_reduced_motion_moves_nothing(chromium, url, events):
    with farm(chromium, url) as page:
        for kind in (
            "RunStarted",
            "SessionSaved",
            "Recalled",
            "ToolStarted",
            "NoteRemembered",
            "ToolEnded",
            "DayClosed",
        ):
            scrub(page, at(events, kind) - 1)
            page.locator("#step").click()
            assert page.locator("#place").inner_text().startswith(f"event {at(events, kind)} of")
            assert page.evaluate("document.getAnimations().length") == 0, kind
        assert page.locator("#spectre .dazed").is_visible(), "the night is seen without moving"


def test_r73_it_speaks_french_and_a_screen_reader_is_told_the_picture(chromium, url, events):
    with farm(chromium, url, at(events, "DayClosed"), locale="fr-FR") as page:
        assert page.locator("#when").inner_text() == "Nuit après le jour 1"
        caption = "Nuit. Le Spectre Effaceur vide le bandonéon, se jette sur le journal, et rebondit."
        assert page.get_by_role("img", name=caption).count() == 1
        assert caption in page.locator("#scrub").get_attribute("aria-valuetext")
        page.get_by_label("Langue").select_option("en")
        assert page.locator("#when").inner_text() == "Night after day 1"
        assert "Nuit" not in page.locator("main").inner_text()


def test_r73_no_serious_fault_for_those_who_do_not_see_it(chromium, url, events):
    with farm(chromium, url, at(events, "Recalled")) as page:
        found = faults(page)
        page.emulate_media(color_scheme="dark", reduced_motion="reduce")
        found += faults(page)
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert found == []


def test_r70_a_live_diary_is_seen_at_the_farm(chromium, tmp_path):
    with serving(tmp_path) as served, page_of(chromium, reduced_motion="reduce") as page:
        served.call("POST", f"{of('u1')}/notes", {"text": "Likes tea."})
        page.goto(f"http://127.0.0.1:{served.port}/#token={served.admin}&owner=u1")
        page.get_by_role("link", name="See it at the farm").click()
        page.get_by_text("Waiting for something to happen").first.wait_for()
        message = {"messages": [{"role": "user", "content": "Hello."}]}
        served.call("POST", f"{of('u1')}/sessions/s/messages", message)
        page.locator("#folds li").wait_for()
        served.call("POST", f"{of('u1')}/recall", {"question": "tea"})
        page.locator("#ranks li", has_text="Likes tea.").wait_for()


def test_rw_057_what_was_said_is_shown_as_text_at_the_farm_and_in_the_file(chromium, events, tmp_path):
    """RW-057, T-SRV-7: every text of the run hostile, in the page and in the export."""
    names = {"prompt", "session", "text", "query", "result", "model", "role"}
    bent = [
        {field: HOSTILE if field in names and value else value for field, value in event.items()}
        | ({"candidates": [[HOSTILE, HOSTILE, 0.5]], "handed_on": [HOSTILE]} if event["event"] == "Recalled" else {})
        for event in events
    ]
    lines = b"".join(json.dumps(event).encode() + b"\n" for event in bent)
    file = tmp_path / "farm.html"
    file.write_text(as_page(lines), encoding="utf-8")
    with shown(lines) as url:
        for place in (url, file.as_uri()):
            with farm(chromium, place, at(events, "Recalled")) as page:
                assert HOSTILE in page.locator("#ranks").text_content()
                scrub(page, len(bent))
                assert HOSTILE in page.locator("#transcript").text_content()
                assert page.locator("main img, main script, main iframe").count() == 0
                assert page.locator("script").count() == (2 if place.startswith("file") else 1)


# -- one file ----------------------------------------------------------------------------------------------------------


def test_the_export_needs_no_network_and_lets_in_its_own_script_only(chromium, recording, events, tmp_path):
    page_text = as_page(as_lines(replay(recording)))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page_text)[1]
    assert re.sub(r"'sha256-[^']+'", "HASH", policy) == (
        "default-src 'none'; script-src HASH; style-src HASH; img-src data:; base-uri 'none'; form-action 'none'"
    )
    for pattern in (r'<script type="module">(.*?)</script>', r"<style>(.*?)</style>"):
        [inside] = re.findall(pattern, page_text, re.DOTALL)
        assert base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() in policy
    assert not re.search(r'(?:src|href)="(?!data:|#)', page_text)
    file = tmp_path / "farm.html"
    file.write_text(page_text, encoding="utf-8")
    asked = []
    with page_of(chromium, reduced_motion="reduce", offline=True) as page:
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        page.get_by_text(f"event 0 of {len(events)}").wait_for()
        scrub(page, at(events, "DayClosed"))
        assert page.locator("#when").inner_text() == "Night after day 1"
        assert page.locator("#bring").is_hidden()
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]


# -- the command -------------------------------------------------------------------------------------------------------


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "diarist", "replay", *map(str, arguments)],
        capture_output=True, encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip


def test_r69_text_and_json_are_what_was_recorded(recording, capsys):
    said = []
    for event in replay(recording):
        console()(event)
    said = capsys.readouterr().err
    printed = run(recording, "--text")
    assert (printed.returncode, printed.stdout) == (0, said), "as the panel showed it when it happened"
    as_json = run(recording, "--json")
    assert [json.loads(line) for line in as_json.stdout.splitlines()] == [
        json.loads(line) for line in recording.read_text(encoding="utf-8").splitlines()
    ]


def test_html_is_written_for_the_person_alone_and_over_nothing(recording, tmp_path):
    file = tmp_path / "farm.html"
    assert run(recording, "--html", file).returncode == 0
    assert file.stat().st_mode & 0o777 == 0o600 or sys.platform == "win32"
    before = file.read_bytes()
    again = run(recording, "--html", file)
    assert (again.returncode, file.read_bytes()) == (1, before)
    assert "--force" in again.stderr


def test_what_is_no_recording_is_refused_with_the_line(tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"event": "RunStarted"}\n', encoding="utf-8")
    refused = run(bad)
    assert refused.returncode == 2
    assert "line 1" in refused.stderr
    assert "Traceback" not in refused.stderr
    bad.write_text("", encoding="utf-8")
    assert run(bad).returncode == 1
    assert run(tmp_path / "none.jsonl").returncode == 1
    assert run(bad, "--text", "--json").returncode == 2


def test_replay_prints_the_address_and_serves_until_it_is_stopped(recording):
    command = [sys.executable, "-m", "diarist", "replay", str(recording), "--no-browser"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8") as process:
        url = re.search(r"http://127\.0\.0\.1:\d+/\S+", process.stderr.readline())[0]
        status, headers, body = get(url.partition("#")[0])
        process.send_signal(2)
        assert process.wait(10) in (0, 130)
    assert status == 200
    assert b"<svg" in body
    assert headers["content-security-policy"] == CSP


def test_t_srv_1_the_run_is_only_under_its_own_address(recording):
    """T-SRV-1: no other path, no other name; nothing but the pages and the run; nothing is kept by a cache."""
    with shown(as_lines(replay(recording))) as url:
        secret = urlsplit(url).path.split("/")[1]
        status, headers, body = get(url.replace("farm.html#run", "run.jsonl"))
        assert (status, headers["cache-control"], headers["content-security-policy"]) == (200, "no-store", CSP)
        assert body.count(b"\n") == len(recording.read_text(encoding="utf-8").splitlines())
        root = url.partition(secret)[0]
        for path in (
            "",
            "run.jsonl",
            "farm.html",
            f"{'x' * len(secret)}/run.jsonl",
            f"{secret}/../replay.py",
            f"{secret}/",
        ):
            assert get(root + path)[0] == 404, path
        for host in ("evil.example", "127.0.0.1.nip.io:80", "", "localhost.evil.example:80"):
            assert get(url, host=host)[0] == 421, host


def get(url, host=None):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=10)
    connection.request("GET", parts.path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body
