"""The inspector's own files, from `web/`: what is there when the server starts is served, and nothing else.

They hold nothing of anybody's: the page asks for the token, and then the API for notes.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.responses import Response

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
        """As they stand in a URL, after the first slash; "" is the page itself."""
        return ["", *self._files]

    def answer(self, path: str) -> Response:
        found = self._files[path or "index.html"]
        kind = _KINDS[found.name.rpartition(".")[2]]
        return Response(found.read_bytes(), media_type=kind, headers={"cache-control": "no-cache"})


def _under(folder: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for each in folder.iterdir():
        if each.is_dir():
            found += _under(each, f"{prefix}{each.name}/")
        elif each.name.rpartition(".")[2] in _KINDS:
            found.append((prefix + each.name, each))
    return found
