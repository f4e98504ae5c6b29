"""Your own embedder: any object with an id, a size and two methods. This one needs no model: it compares letters, so it
forgives typing errors and knows nothing of meaning.

    python examples/custom_embedder.py
"""

import zlib

import numpy as np
from numpy.typing import NDArray

from diarist import Memory


class Trigrams:
    """Each three letters in a row add one at the place that their checksum says."""

    id = "trigrams-1"  # name and version: vectors of different ids are never compared
    dim = 1024

    def embed_notes(self, texts: list[str], /) -> NDArray[np.float32]:
        """Shape (n, dim). Finite and not zero; the length of a vector does not matter."""
        made = np.zeros((len(texts), self.dim), np.float32)
        for row, text in zip(made, texts, strict=True):
            padded = f"  {text.casefold()}  "
            for at in range(len(padded) - 2):
                row[zlib.crc32(padded[at : at + 3].encode()) % self.dim] += 1
        return made

    def embed_query(self, text: str, /) -> NDArray[np.float32]:
        """Shape (dim,). A model that wants another prefix for questions puts it here."""
        return self.embed_notes([text])[0]


def main() -> None:
    with Memory("memory", embedder=Trigrams()) as memory:
        diary = memory.diary("c-2291")
        diary.remember_many(["Buys Colombia, a kilo a month.", "Has a moka pot.", "Lives in Rosario."])
        found = diary.recall("Colmbia, a killo")
        for hit in found:
            print(f"{hit.score:.2f} {hit.note.text}")
            for part in hit.why:
                print(f"       {part.value:+.2f} {part.name}: {part.text}")


if __name__ == "__main__":
    main()
