"""The errors a caller may catch: one tree under `DiaristError`.

Bad arguments are the built-in `ValueError` and `TypeError`; everything the world does to us is here.

    DiaristError
    ├── NotFound         no such note in this diary
    ├── StoreError       the diary could not be read or written
    │   ├── StoreBusy    another process kept the diary locked for too long
    │   ├── StoreCorrupt the file is damaged, or is not a diary
    │   └── SchemaTooNew a later version of diarist wrote it
    ├── EmbedderError    text could not be turned into a vector
    ├── PageFull         the page has no room for what was added
    ├── EndpointError    a model endpoint failed
    └── MissingExtra     an optional part of diarist is not installed
"""


class DiaristError(Exception):
    """Everything diarist raises on purpose, but for bad arguments."""


class NotFound(DiaristError, LookupError):
    """No note with that id in this diary. Another owner's id looks just the same."""


class StoreError(DiaristError):
    """The diary could not be read or written; the message names the path and the cause."""


class StoreBusy(StoreError):
    """Another process held the diary's lock longer than `Memory(busy_timeout=...)` seconds."""


class StoreCorrupt(StoreError):
    """The file is damaged or is not a diary. It was left exactly as it was."""


class SchemaTooNew(StoreError):
    """A later version of diarist wrote this diary. It was left exactly as it was."""


class EmbedderError(DiaristError):
    """A text could not be turned into a vector. Notes are kept all the same, found by their words."""


class PageFull(DiaristError):
    """The page has no room for what was added; the message says how full it is."""


class EndpointError(DiaristError):
    """A model endpoint refused, failed or did not answer in time."""


class MissingExtra(DiaristError, ImportError):
    """An optional part is not installed; the message names the extra to install."""
