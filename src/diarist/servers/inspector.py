"""The pages for people, from `web/`: what is there when a server starts is served, and nothing else.

They hold nothing of anybody's: the inspector asks for the token, and then the API for notes; the farm is handed a run.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

_KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
    "png": "image/png",
    "woff2": "font/woff2",
}


class Inspector:
    """Every file under `web/`, by its path in a URL."""

    def __init__(self) -> None:
        self._files = dict(_under(files("diarist.servers") / "web", ""))

    @property
    def paths(self) -> list[str]:
        """As they stand in a URL, after the first slash; "" is the inspector itself."""
        return ["", *self._files]

    def read(self, path: str) -> tuple[bytes, str]:
        """(what is in the file, its media type). KeyError for a path that is not one of `paths`."""
        found = self._files[path or "index.html"]
        return found.read_bytes(), _KINDS[found.name.rpartition(".")[2]]


def _under(folder: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for each in folder.iterdir():
        if each.is_dir():
            found += _under(each, f"{prefix}{each.name}/")
        elif each.name.rpartition(".")[2] in _KINDS:
            found.append((prefix + each.name, each))
    return found
