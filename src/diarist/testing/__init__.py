"""For tests of diarist and of what is built on it. Not for production: `HashEmbedder` knows nothing of meaning.

`FixedClock`, `HashEmbedder`   a clock and an embedder that do as they are told      fakes.py
`LoopbackEndpoint`, `FAULTS`   a real HTTP server with every fault on request         endpoint.py
`EmbedderContract`             what every embedder must do                            embedder_contract.py
`StoreContract`                what every store must do, isolation first              store_contract.py
"""

from .embedder_contract import ODD_TEXTS, EmbedderContract
from .endpoint import FAULTS, Fault, LoopbackEndpoint, Request
from .fakes import FixedClock, HashEmbedder
from .store_contract import StoreContract

__all__ = [
    "FAULTS",
    "ODD_TEXTS",
    "EmbedderContract",
    "Fault",
    "FixedClock",
    "HashEmbedder",
    "LoopbackEndpoint",
    "Request",
    "StoreContract",
]
