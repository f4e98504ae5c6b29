"""A name of any text <-> one segment of a path. Percent-encoding is not enough: browsers and proxies resolve `..`, and
many undo `%2F`, before a server sees them."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*")


def segment(name: str) -> str:
    """The name as it is, where that is safe in any path; else ~ and the base64url of its UTF-8."""
    if _PLAIN.fullmatch(name):
        return name
    return "~" + urlsafe_b64encode(name.encode()).decode().rstrip("=")


def name_of(segment: str) -> str:
    """The name that a segment stands for. ValueError if it stands for none."""
    if _PLAIN.fullmatch(segment):
        return segment
    encoded = segment[1:]
    try:
        if segment[:1] != "~" or not re.fullmatch("[A-Za-z0-9_-]+", encoded):
            raise ValueError
        data = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        if urlsafe_b64encode(data).decode().rstrip("=") != encoded:
            raise ValueError  # bits that stand for nothing: one name, one spelling
        return data.decode()
    except ValueError:
        raise ValueError(
            "a name in the path is neither plain (letters, digits and . _ @ -) nor ~ and the base64url of its UTF-8"
        ) from None
