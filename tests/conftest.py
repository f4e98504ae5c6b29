"""What most tests begin with: a folder, and a clock that stands still."""

from __future__ import annotations

import pytest

from diarist.testing import FixedClock
from support import quick_folder


@pytest.fixture
def quick():
    """A folder in memory where there is one."""
    with quick_folder() as place:
        yield place


@pytest.fixture
def clock():
    return FixedClock("2026-03-01T09:00:00Z")
