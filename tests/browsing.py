"""A browser for tests: the system's Chromium, headless, and pages that notice what must not happen. No tests here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

AXE_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium; where there is none, the tests that need it are skipped."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("needs a browser: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    # Its sandbox does not start for root, and no page of another's making is opened here.
    args = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=args)
        try:
            yield chromium
        finally:
            chromium.close()


@contextmanager
def page_of(chromium: Any, **options: Any) -> Iterator[Any]:
    """A page of its own. Afterwards: nothing was logged as an error, nothing was asked of another host, and no dialog
    of a script came up."""
    context = chromium.new_context(**{"locale": "en-GB", "viewport": {"width": 1200, "height": 900}, **options})
    context.set_default_timeout(15_000)
    page, wrong = context.new_page(), []

    def asked(request: Any) -> None:
        url = urlsplit(request.url)
        if url.scheme not in ("data", "blob", "file") and url.hostname != "127.0.0.1":
            wrong.append(f"asked {request.url}")

    page.on("console", lambda said: wrong.append(f"{said.type}: {said.text}") if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(f"raised {error}"))
    page.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", asked)
    try:
        yield page
        assert wrong == []
    finally:
        context.close()


def faults(page: Any) -> list[str]:
    """What axe-core finds that is serious or critical, by rule and place."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"runOnly": AXE_RULES, "resultTypes": ["violations"]}).response["violations"]
    return [
        f"{each['id']}: {node['html'][:120]}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
