"""Secrets in a text: of what kinds, and the text without them. What is done about them is the host's policy,
`Memory(secrets=...)`: "keep" them, "mask" them, or "refuse" the text.

It finds what has a form: keys and tokens of well-known services, private keys, addresses with a password in them, card
and account numbers whose check digits are right, and a password that is called one. It cannot find a password in free
prose. Time is linear in the text: every repetition is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, cast

Policy = Literal["keep", "refuse", "mask"]
POLICIES: tuple[Policy, ...] = ("keep", "refuse", "mask")

# `(?<![\w-])`: a key does not begin in the middle of a longer word.
_FORMS: tuple[tuple[str, str], ...] = (
    ("private key", r"-----BEGIN [A-Z ]{0,24}PRIVATE KEY-----[^-]{0,16384}(?:-----END [A-Z ]{0,24}PRIVATE KEY-----)?"),
    ("token", r"(?<![\w-])eyJ[\w-]{8,4096}\.[\w-]{8,8192}(?:\.[\w-]{1,1024})?"),
    ("API key", r"(?<![\w-])(?:sk|rk|pk)[-_](?:[a-z]{2,8}[-_])?(?=[\w-]{0,64}\d)[A-Za-z0-9_-]{16,256}"),
    ("API key", r"(?<![\w-])(?:sk|rk)-[\w-]{20,256}"),
    ("API key", r"(?<![\w-])(?:gh[pousr]_|github_pat_|hf_|npm_)\w{20,255}"),
    ("API key", r"(?<![\w-])(?:glpat-[\w-]{16,64}|xox[abeoprs]-[\w-]{10,256}|pypi-[\w-]{16,255}|ya29\.[\w-]{20,256})"),
    ("API key", r"(?<![\w-])(?:SG\.[\w-]{16,64}\.[\w-]{16,128}|(?:AKIA|ASIA)[A-Z0-9]{16}(?!\w)|AIza[\w-]{30,48})"),
    (
        "password",
        r"(?<![\w-])[a-z][a-z0-9+.-]{1,20}://[^\s:/@\"'\\]{0,128}:[^\s/\"'\\]{1,128}@[^\s@\"'\\]{1,255}",
    ),
    (
        "password",
        (
            r"(?i:(?<!\w)(?:password|passwd|passphrase|passwort|kennwort|mot de passe|contraseña|senha|пароль))\s{0,2}"
            r"(?:[:=]\s{0,2}[^\s\"'\\]{4,128}|(?i:is|est|es|ist|é|-)\s{1,2}(?=[^\s\"'\\]{0,64}\d)[^\s\"'\\]{4,128})"
        ),
    ),
    ("account number", r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)"),
    ("card number", r"(?<![\w.+-])\d(?:[ -]?\d){13,18}(?![\w-])"),
)
_CARD_LENGTHS = (14, 15, 16, 19)  # digits, by ISO/IEC 7812 as it is used today
_MOST_GROUPS = 8
# Of a message: what its place goes by, and what is no text.
_STRUCTURE = {"role", "id", "tool_call_id", "type", "name", "created_at", "image_url", "input_audio", "file"}


def kinds(text: str) -> tuple[str, ...]:
    """Which kinds of secret the text holds, without saying them; () for none."""
    found: list[str] = []

    def note(kind: str) -> str:
        found.append(kind)
        return f"[{kind} removed]"

    _replaced(text, note)
    return tuple(dict.fromkeys(found))


def masked(text: str) -> str:
    """The text with each secret replaced by what it was: "[card number removed]"."""
    return _replaced(text, "[{} removed]".format)


def allowed(text: str, policy: Policy, what: str) -> str:
    """The text as the policy lets it be kept. ValueError, with the kind and never the value, where it refuses."""
    if policy == "keep":
        return text
    if policy == "refuse" and (found := kinds(text)):
        raise ValueError(f"{what} holds a secret ({', '.join(found)}), which this memory does not keep: leave it out")
    return masked(text)


def masked_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of the chat-completions shape without secrets in what was said, called and answered. Its structure
    stays, so that the conversation can go on."""
    return {key: value if key in _STRUCTURE else _masked_value(value) for key, value in message.items()}


def _masked_value(value: Any) -> Any:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, list):
        return [_masked_value(each) for each in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        held = cast("Mapping[str, Any]", value)
        arguments = held.get("arguments")
        told = {key: each if key in _STRUCTURE else _masked_value(each) for key, each in held.items()}
        return told | ({"arguments": _masked_json(arguments)} if isinstance(arguments, str) else {})
    return value


def _masked_json(text: str) -> str:
    """The arguments of a call, which are JSON in a string: they must stay JSON, also where a number is the secret."""
    try:
        data: Any = json.loads(text)
    except ValueError:
        return masked(text)
    without = _masked_leaves(data)
    return text if without == data else json.dumps(without, ensure_ascii=False)


def _masked_leaves(data: Any) -> Any:
    if isinstance(data, dict):
        return {masked(key): _masked_leaves(each) for key, each in cast("dict[str, Any]", data).items()}
    if isinstance(data, list):
        return [_masked_leaves(each) for each in cast("list[Any]", data)]
    if isinstance(data, int) and not isinstance(data, bool):
        return data if masked(str(data)) == str(data) else masked(str(data))
    return masked(data) if isinstance(data, str) else data


def _replaced(text: str, by: Callable[[str], str]) -> str:
    for kind, form in _FORMS:
        checked = _CHECKED.get(kind)
        text = re.sub(form, partial(checked, by=by) if checked else lambda _, kind=kind: by(kind), text)
    return text


def _card(found: re.Match[str], by: Callable[[str], str]) -> str:
    """The longest run of whole groups of digits that is a card number, since a date or a code may stand beside it."""
    groups = [(each.start(), each.end()) for each in re.finditer(r"\d+", found[0])]
    if len(groups) > _MOST_GROUPS:
        groups = [(0, len(found[0]))]
    for first, (start, _) in enumerate(groups):
        for _, end in reversed(groups[first:]):
            digits = re.sub(r"\D", "", found[0][start:end])
            if len(digits) in _CARD_LENGTHS and digits[0] in "23456" and _luhn(digits):
                return found[0][:start] + by("card number") + found[0][end:]
    return found[0]


def _luhn(digits: str) -> bool:
    """ISO/IEC 7812-1, annex B."""
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits)))
    return sum(each - 9 if each > 9 else each for each in doubled) % 10 == 0


def _account(found: re.Match[str], by: Callable[[str], str]) -> str:
    """ISO 13616: letters are numbers from 10, and the rest of a division by 97 is 1."""
    number = found[0].replace(" ", "")
    turned = "".join(str(int(char, 36)) for char in number[4:] + number[:4])
    return by("account number") if 15 <= len(number) <= 34 and int(turned) % 97 == 1 else found[0]


_CHECKED: dict[str, Callable[..., str]] = {"card number": _card, "account number": _account}
