"""Secrets in a text: found by their form, masked or refused, and never sent anywhere."""

from __future__ import annotations

import json
import time

import pytest

from diarist import Memory, redaction
from diarist.testing import HashEmbedder, LoopbackEndpoint

pytestmark = pytest.mark.timeout(60)

# Made up, and put together here so that no scanner of repositories takes them for real.
KEYS = {
    "openai": "sk-" + "proj-Zk3v9QmT7wLr2XyB8nHc5DfG",
    "anthropic": "sk-" + "ant-api03-Zk3v9QmT7wLr2XyB8nHc5DfG",
    "github": "gh" + "p_Zk3v9QmT7wLr2XyB8nHc5DfG1234567890ab",
    "gitlab": "glp" + "at-Zk3v9QmT7wLr2XyB8nHc",
    "hugging face": "h" + "f_Zk3vQmTwLrXyBnHcDfGZk3vQmTwLrXyBn",
    "npm": "np" + "m_Zk3v9QmT7wLr2XyB8nHc5DfGZk3v9QmT7wLr",
    "sendgrid": "S" + "G.Zk3v9QmT7wLr2XyB8nHc5D.Zk3v9QmT7wLr2XyB8nHc5DfGZk3v9QmT7wLr2XyB8nH",
    "aws": "AK" + "IAZK3V9QMT7WLR2XYB",
    "google": "AI" + "zaSyZk3v9QmT7wLr2XyB8nHc5DfGZk3v9QmT",
    "slack": "xo" + "xb-1234567890-Zk3v9QmT7wLr2XyB8nHc",
}
OTHERS = {
    "token": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "private key": "-----BEGIN " + "PRIVATE KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQ==\n-----END PRIVATE KEY-----",
    "password": "postgres" + "://app:2MzP0ZvzOMhf@db.internal:5432/app",
    "card number": "4111 1111 1111 1111",
    "account number": "DE89 3704 0044 0532 0130 00",
}
SECRETS = [("API key", key) for key in KEYS.values()] + list(OTHERS.items())


@pytest.mark.parametrize(("kind", "secret"), SECRETS)
def test_t_sec_1_what_has_a_form_is_found_and_masked_alone(kind, secret):
    text = f"She wrote: {secret} and likes tea."
    assert redaction.kinds(text) == (kind,)
    assert redaction.masked(text) == f"She wrote: [{kind} removed] and likes tea."
    assert redaction.masked(redaction.masked(text)) == redaction.masked(text)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("password: Tr0ub4dor&3 for the portal", "[password removed] for the portal"),
        ("mi contraseña es gato123", "mi [password removed]"),
        ("mon mot de passe est Soleil2026!", "mon [password removed]"),
        ("card 4111111111111111 expiry 12/28", "card [card number removed] expiry 12/28"),
        ("card 4111 1111 1111 1111 12 28", "card [card number removed] 12 28"),
        ("5500-0000-0000-0004", "[card number removed]"),
    ],
)
def test_t_sec_1_beside_other_words_and_numbers(text, rest):
    assert redaction.masked(text) == rest


@pytest.mark.parametrize(
    "text",
    [
        "Order 4111111111111112 of 2026-03-01, ring 0034 911 234 567.",  # no card: its check digit is wrong
        "Her password is on the fridge; the password manager blocks our mails.",
        "Meet at https://shop.example:8080/a and write to ana@example.com.",
        "DE89 3704 0044 0532 0130 01",  # no account: the same
        "task-list-for-the-whole-of-the-week, risk-free-trial-offer-2026",
        "ISBN 978-3-16-148410-0, tracking 00340434161094042557",
        "",
    ],
)
def test_t_sec_1_what_is_none_stays(text):
    assert redaction.masked(text) == text


@pytest.mark.parametrize(
    "piece", ["1 ", "eyJ", "sk-", "a://", "a://b:c ", "-----BEGIN PRIVATE KEY-----", "a.", "DE89 3704 "]
)
def test_t_dos_3_time_grows_with_the_text_and_no_faster(piece):
    def took(length):
        start = time.perf_counter()
        redaction.masked((piece * length)[:length])
        return time.perf_counter() - start

    took(4_000)
    assert took(64_000) <= min(1.0, 100 * took(4_000) + 0.05)


def everything(place):
    return b"".join(path.read_bytes() for path in place.rglob("*") if path.is_file())


@pytest.mark.parametrize("policy", ["mask", "refuse"])
def test_t_sec_1_r54_no_secret_leaves_for_the_embedder_or_reaches_the_disk(tmp_path, policy):
    """By every way in: notes one by one and many, corrections, imports, the page, messages, and questions."""
    key, card = KEYS["openai"], OTHERS["card number"]
    with (
        LoopbackEndpoint() as server,
        Memory(tmp_path / "from", embedder=HashEmbedder()) as careless,
        Memory(tmp_path / "m", embedder=f"openai:m@{server.base_url}", secrets=policy) as memory,
    ):
        careless.diary("c").remember(f"Her key is {key}.", source=f"mail with {card}")
        exported = careless.diary("c").export()
        diary = memory.diary("c")
        kept = diary.remember("Likes tea.")
        ways = {
            "remember": lambda: diary.remember(f"Her key is {key}."),
            "source": lambda: diary.remember("Likes cake.", source=card),
            "many": lambda: diary.remember_many(["Likes rye.", f"Pays with {card}."]),
            "edit": lambda: diary.edit(kept.id, f"Pays with {card}."),
            "load": lambda: diary.load(exported),
            "page add": lambda: diary.page.add(f"Key {key}"),
            "page write": lambda: diary.page.write(f"Card {card}\n"),
        }
        for name, way in ways.items():
            if policy == "mask":
                way()
            else:
                with pytest.raises(ValueError, match=r"holds a secret \((API key|card number)\)") as told:
                    way()
                assert key not in str(told.value), name
                assert card not in str(told.value), name
        session = diary.session("s")
        call = {"id": "1", "type": "function", "function": {"name": "pay", "arguments": json.dumps({"card": card})}}
        session.extend(
            [
                {"role": "user", "content": f"My card is {card}."},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": f"charged {card}"},
                {"role": "user", "content": [{"type": "text", "text": f"and the key {key}"}]},
            ]
        )
        diary.recall(f"whose key is {key}?", where="all")
        sent = json.dumps([request.body for request in server.requests])
        memory.close()
        assert server.requests
        for secret in (key, card):
            assert secret not in sent
            assert secret.encode() not in everything(tmp_path / "m")
    assert key.encode() in everything(tmp_path / "from")  # the search finds what is there


def test_r54_a_refusal_keeps_nothing_and_reads_as_one_to_the_model(tmp_path):
    with Memory(tmp_path / "m", embedder=HashEmbedder(), secrets="refuse") as memory:
        diary = memory.diary("c")
        remember = diary.tools()[0]
        with pytest.raises(ValueError, match="leave it out") as told:
            remember.run({"note": f"Key: {KEYS['github']}"})
        assert KEYS["github"] not in str(told.value)
        with pytest.raises(ValueError, match=r"note 1 .*nothing was saved"):
            diary.remember_many(["Likes tea.", OTHERS["card number"]])
        assert diary.notes() == []


def test_a_masked_session_goes_on_and_only_what_was_said_is_changed(tmp_path):
    with Memory(tmp_path / "m", embedder=HashEmbedder(), secrets="mask") as memory:
        session = memory.diary("c").session("s")
        arguments = json.dumps({"card": 4111111111111111, "kg": 2, "note": "x"})
        call = {"id": "call-4111111111111111", "type": "function", "function": {"name": "pay", "arguments": arguments}}
        said = [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call-4111111111111111", "content": "done"},
        ]
        session.extend(said)
        first, second = session.messages
        assert second == said[1]
        assert first["tool_calls"][0]["id"] == call["id"]
        kept = json.loads(first["tool_calls"][0]["function"]["arguments"])
        assert kept == {"card": "[card number removed]", "kg": 2, "note": "x"}


def test_the_default_keeps_what_it_is_given_and_merge_never_fails_at_a_secret(tmp_path):
    text = f"Pays with {OTHERS['card number']}."
    with Memory(tmp_path / "m", embedder=HashEmbedder()) as memory:
        assert memory.diary("guest").remember(text).text == text
    with Memory(tmp_path / "m", embedder=HashEmbedder(), secrets="refuse") as memory:
        assert memory.merge("guest", "c") == 1
        assert [note.text for note in memory.diary("c").notes()] == [text]
    with pytest.raises(ValueError, match="'keep', 'refuse', 'mask', not 'hide'"):
        Memory(tmp_path / "m", secrets="hide")
