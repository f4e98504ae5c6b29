"""What erasing reports: which copies were looked at, and whether anything is left. It holds no content.

How a note's bytes leave the files: SQLite overwrites freed cells and pages with zeros (secure_delete), and the
write-ahead log is emptied at once, or as soon as the last reader of the state before is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What an erasure did."""

    at: datetime
    notes: int
    """Notes erased, replaced and expired ones included."""
    messages: int
    checked: tuple[str, ...]
    """Where was looked: the names of files, or what was not looked at and why."""
    residue: tuple[str, ...]
    """Files that still hold a text that was to be erased, such as a page on which a person wrote it too."""
    pending: bool
    """True while another process still reads the state before: its log goes with the next write, or `doctor`."""

    @property
    def complete(self) -> bool:
        """Whether nothing is left anywhere it looked."""
        return not self.pending and not self.residue
