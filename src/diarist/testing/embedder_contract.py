"""What every embedder must do."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from ..embedders import Embedder

ODD_TEXTS = (
    "a",
    "7",
    "👩‍👩‍👧‍👦 🏳️‍🌈",
    "שלום עולם \u202e الماء",
    "tab\tline\nbell\x07 escape\x1b[31m",
    "half a pair \ud83d and more",
    "nothing\0 lost after NUL",
    "\ufeff\u200bzero width",
    "e\u0301" * 40,
    "一二三四五六七八九十",
    "ภาษาไทยไม่มีช่องว่าง",
    "'; DROP TABLE notes; --",
    "long " * 300,
)
"""Texts that a person or a program may well write, and that each broke an embedder somewhere."""


class EmbedderContract:
    """What every embedder must do. Subclass it in a test module and give it a fixture named `embedder`:

    class TestMine(EmbedderContract):
        @pytest.fixture
        def embedder(self):
            return Mine()
    """

    meaning: ClassVar[bool] = True
    """Whether related texts in other words, and languages, must come out nearer than unrelated ones."""

    def test_notes_and_questions_have_the_stated_shape_and_are_float32(self, embedder: Embedder) -> None:
        import numpy as np

        notes, question = embedder.embed_notes(["Buys coffee.", "Has a dog."]), embedder.embed_query("Which pet?")
        assert isinstance(embedder.id, str)
        assert embedder.id
        assert (notes.shape, question.shape) == ((2, embedder.dim), (embedder.dim,))
        assert (notes.dtype, question.dtype) == (np.float32, np.float32)

    def test_vectors_are_of_length_one(self, embedder: Embedder) -> None:
        import numpy as np

        lengths = np.linalg.norm(embedder.embed_notes(["Buys coffee.", "Has a dog.", "7"]), axis=1)
        assert np.allclose(lengths, 1, atol=1e-3)

    def test_a_batch_keeps_its_order_and_equals_its_texts_one_by_one(self, embedder: Embedder) -> None:
        import numpy as np

        texts = [f"The {thing} is on shelf {i}." for i, thing in enumerate(("lamp", "moka pot", "tent", "cello"))]
        single = np.vstack([embedder.embed_notes([text]) for text in texts])
        assert np.allclose(embedder.embed_notes(texts), single, atol=1e-3)
        assert np.allclose(embedder.embed_notes(texts[::-1]), single[::-1], atol=1e-3)

    def test_the_same_text_has_the_same_vector(self, embedder: Embedder) -> None:
        import numpy as np

        first, second = embedder.embed_notes(["Buys coffee.", "Buys coffee."])
        assert np.allclose(first, second, atol=1e-4)
        assert np.allclose(embedder.embed_query("Which pet?"), embedder.embed_query("Which pet?"), atol=1e-4)

    def test_odd_texts_have_vectors_too(self, embedder: Embedder) -> None:
        import numpy as np

        vectors = embedder.embed_notes(list(ODD_TEXTS))
        assert vectors.shape == (len(ODD_TEXTS), embedder.dim)
        assert np.isfinite(vectors).all()
        assert (np.linalg.norm(vectors, axis=1) > 0).all()
        for text in ODD_TEXTS[:6]:
            assert np.isfinite(embedder.embed_query(text)).all()

    def test_what_follows_a_nul_counts(self, embedder: Embedder) -> None:
        import numpy as np

        whole, cut = embedder.embed_notes(["Her dog\0 is called Pipoca.", "Her dog"])
        assert not np.allclose(whole, cut, atol=1e-3)

    def test_blank_texts_are_refused(self, embedder: Embedder) -> None:
        for blank in ("", "  \n", "\0"):
            for asked in ("note", "question"):
                try:
                    _ = embedder.embed_query(blank) if asked == "question" else embedder.embed_notes([blank])
                except ValueError:
                    continue
                raise AssertionError(f"the {asked} {blank!r} was given a vector, which would be near everything")

    def test_no_texts_give_no_vectors(self, embedder: Embedder) -> None:
        dim = embedder.dim  # asked first: an endpoint learns it from its first answer
        assert embedder.embed_notes([]).shape == (0, dim)

    def test_the_list_given_is_left_as_it_was(self, embedder: Embedder) -> None:
        texts = ["half a pair \ud83d", "nul \0"]
        embedder.embed_notes(texts)
        assert texts == ["half a pair \ud83d", "nul \0"]

    def test_id_and_dim_stay(self, embedder: Embedder) -> None:
        before = (embedder.id, embedder.dim)
        embedder.embed_notes(["Buys coffee."])
        assert (embedder.id, embedder.dim) == before

    def test_related_texts_are_nearer_than_unrelated(self, embedder: Embedder) -> None:
        texts = ["Her dog is called Pipoca.", "The invoice is due on Friday.", "She moved to Lyon last year."]
        notes = embedder.embed_notes(texts)
        questions = ["Her dog is called what?", "When is the invoice due?"]
        if self.meaning:
            questions = ["What is the name of the pet?", "Bis wann muss die Rechnung bezahlt werden?"]
        for i, question in enumerate(questions):
            assert int((notes @ embedder.embed_query(question)).argmax()) == i, question
