"""For tests of diarist and of what is built on it. Not for production: `HashEmbedder` knows nothing of meaning.

`FixedClock`, `HashEmbedder`   a clock and an embedder that do as they are told      fakes.py
`LoopbackEndpoint`, `FAULTS`,
`QUIRKS`                       a real HTTP server with every fault on request         endpoint.py, chat.py
`ScriptedModel`, `call`        a chat model that says what it is told to              scripted.py
`EmbedderContract`             what every embedder must do                            embedder_contract.py
`StoreContract`                what every store must do, isolation first              store_contract.py
"""

from .embedder_contract import ODD_TEXTS, EmbedderContract
from .endpoint import FAULTS, QUIRKS, Fault, LoopbackEndpoint, Request
from .fakes import FixedClock, HashEmbedder
from .scripted import ScriptedModel, call
from .store_contract import StoreContract

__all__ = [
    "FAULTS",
    "ODD_TEXTS",
    "QUIRKS",
    "EmbedderContract",
    "Fault",
    "FixedClock",
    "HashEmbedder",
    "LoopbackEndpoint",
    "Request",
    "ScriptedModel",
    "StoreContract",
    "call",
]
