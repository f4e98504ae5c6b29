"""`Page`: one page of notes that goes whole into the system prompt, inside a budget. Markdown that a person may edit.

It lies beside the diary as `page.md`. What a person writes there counts at the next `read`, and is never overwritten by
a copy that was read before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from . import analysis, checks
from .errors import PageFull, StoreError
from .guard import page_block

if TYPE_CHECKING:
    from .stores import DiaryStore

BUDGET = 1_000  # tokens, as `analysis.estimate_tokens` counts them


class Page:
    """The page of one diary, from `Diary.page`."""

    def __init__(
        self, store: DiaryStore, budget: int = BUDGET, allowed: Callable[[str, str], str] = lambda text, _: text
    ) -> None:
        self._store = store
        self._allowed = allowed  # (text, what it is) -> the text as the host's policy on secrets lets it be kept
        self.budget = budget
        """Tokens it may hold, estimated: UTF-8 bytes / 4, and one for each CJK character."""
        self._seen: str | None = None

    @property
    def tokens(self) -> int:
        """Tokens it holds now, estimated."""
        return analysis.estimate_tokens(self._store.page())

    def read(self) -> str:
        """The page as it is, Markdown; "" if there is none."""
        self._seen = self._store.page()
        return self._seen

    def add(self, note: str) -> None:
        """Appends one note as a line. PageFull, with how full the page is and what to do, if it does not fit; then
        nothing changes. The note counts from the next `render`, so that a prompt that is in use stays as it was."""
        text = self._allowed(checks.checked_text(note, "the note", checks.LONGEST_TEXT), "the note")
        line = "- " + " ".join(text.split())

        def appended(text: str) -> str:
            if line in text.splitlines():
                return text
            ended = text if not text or text.endswith("\n") else text + "\n"
            return self._fitting(ended + line + "\n", "The note was not added")

        self._change(appended)

    def join(self, text: str) -> None:
        """Appends the lines of another page that this one does not have yet. PageFull if they do not fit."""

        def joined(now: str) -> str:
            lines = now.splitlines()
            more = [line for line in text.splitlines() if line.strip() and line not in lines]
            return self._fitting("\n".join([*lines, *more]) + "\n", "Nothing was joined") if more else now

        if text.strip():
            self._change(joined)

    def write(self, text: str) -> None:
        """Puts `text` in the place of the whole page; "" empties it. PageFull if it does not fit.

        StoreError if somebody changed the page since this object last read it: read it again and join the two.
        """
        if text != "":
            text = checks.checked_text(text, "the page", checks.LONGEST_TEXT).replace("\r\n", "\n").replace("\r", "\n")
            text = self._allowed(text, "the page")
        self._fitting(text, "The page was left as it was")

        def swapped(now: str) -> str:
            if self._seen is not None and now != self._seen:
                raise StoreError(
                    "the page was changed by someone else since it was read; it was left as they made it."
                    " Read it again and write the two together"
                )
            return text

        self._seen = self._store.change_page(swapped)

    def render(self) -> str:
        """The page as a closed block of data for the system prompt; "" for an empty page. It takes the whole page,
        also where a person made it longer than the budget: nothing is cut."""
        text = self._store.page()
        return page_block(text, self._store.secret) if text.strip() else ""

    def check(self, text: str) -> None:
        """PageFull if the text is more than the page may hold."""
        self._fitting(text, "Nothing was changed")

    def _change(self, change: Callable[[str], str]) -> None:
        """Changes whatever is there. What somebody else wrote meanwhile stays unseen to this object's reader."""
        before = ""

        def noted(now: str) -> str:
            nonlocal before
            before = now
            return change(now)

        after = self._store.change_page(noted)
        if self._seen == before:
            self._seen = after

    def _fitting(self, text: str, outcome: str) -> str:
        tokens = analysis.estimate_tokens(text)
        if tokens > self.budget:
            raise PageFull(
                f"the page would hold {tokens:,} tokens of {self.budget:,} (now {self.tokens:,}). {outcome}: shorten or"
                " remove something on the page first, or keep this as a note with remember"
            )
        return text
