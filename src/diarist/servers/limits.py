"""How much and what: requests a second, and JSON that means one thing only."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, cast

DEEPEST = 64  # brackets in brackets
_MOST_CALLERS = 10_000


class Rate:
    """A bucket of tokens for each caller: so many requests a second, twice that at once."""

    def __init__(self, a_second: float) -> None:
        self._a_second, self._burst = a_second, 2 * a_second
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, caller: str, now: float) -> float:
        """Seconds to wait before this request may come; 0 if it may now. `now` is in seconds, of any clock that only
        goes forward."""
        left, since = self._buckets.pop(caller, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._a_second)
        allowed = left >= 1
        self._buckets[caller] = (left - 1 if allowed else left, now)
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._a_second


def retry_after(wait: float) -> dict[str, str]:
    """The header that says when to come again: whole seconds, 1 or more."""
    return {"Retry-After": str(max(1, math.ceil(wait)))}


def strict_json(data: bytes) -> Any:
    """The value. ValueError for what two readers might take differently, or what makes a reader fall over: a field
    given twice, NaN, infinity, a byte order mark, other encodings, nesting without end."""
    try:
        value = json.loads(data.decode(), object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite)
    except UnicodeDecodeError as e:
        raise ValueError(f"the body is not UTF-8 text: byte {e.start}") from None
    except json.JSONDecodeError as e:
        raise ValueError(f"the body is not JSON: {e.msg} at character {e.pos + 1}") from None
    except RecursionError:
        raise ValueError(f"the body is nested deeper than {DEEPEST}") from None
    if data.count(b"[") + data.count(b"{") > DEEPEST and _depth(value) > DEEPEST:
        raise ValueError(f"the body is nested deeper than {DEEPEST}")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) < len(pairs):
        raise ValueError("the body gives a field twice")
    return held


def _no_constant(name: str) -> float:
    raise ValueError(f"the body holds {name}, which is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("the body holds a number that is too large")
    return value


def _depth(value: object) -> int:
    """How many objects and lists are around the innermost one, that one included; counted no further than needed."""
    depth, level = 0, _nested([value])
    while level and depth <= DEEPEST:
        depth += 1
        level = _nested(inner for each in level for inner in _inside(each))
    return depth


def _nested(values: Iterable[object]) -> list[object]:
    return [each for each in values if isinstance(each, dict | list)]


def _inside(value: object) -> Iterable[object]:
    return cast("dict[str, object]", value).values() if isinstance(value, dict) else cast("list[object]", value)
