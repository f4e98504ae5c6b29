"""What stands before a text when it is embedded: when it was said, and by whom. A vector of "Yes, both of them" alone
means nothing; one of "8 May 2026, Ana: Yes, both of them" is found when somebody asks about Ana.
"""

from __future__ import annotations

from datetime import datetime

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_LONGEST = 80  # characters of a name


def heading(who: str | None, at: datetime | None) -> str:
    """Such as "8 May 2026, Ana: "; "" where neither is known."""
    day = f"{at.day} {_MONTHS[at.month - 1]} {at.year}" if at is not None else ""
    told = ", ".join(each for each in (day, " ".join((who or "").split())[:_LONGEST]) if each)
    return f"{told}: " if told else ""
