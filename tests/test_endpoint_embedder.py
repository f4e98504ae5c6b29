"""The endpoint embedder, over real HTTP on loopback, against every fault that servers were seen to have."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest

from diarist import wire
from diarist.embedders import arrived
from diarist.embedders.endpoint import Endpoint
from diarist.errors import EmbedderError
from diarist.testing import EmbedderContract, Fault, HashEmbedder, LoopbackEndpoint

KEY = "sk-very-secret-0123456789"


@pytest.fixture
def server():
    with LoopbackEndpoint() as running:
        yield running


@pytest.fixture
def waits(monkeypatch):
    """The seconds that would have been slept. Time itself moves by them."""
    slept: list[float] = []
    monkeypatch.setattr(wire, "_sleep", slept.append)
    monkeypatch.setattr(wire, "_now", lambda: time.monotonic() + sum(slept))
    return slept


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


class TestEndpoint(EmbedderContract):
    meaning = False

    @pytest.fixture
    def embedder(self, server):
        return Endpoint("m", server.base_url)


class TestWhatIsSent:
    def test_floats_are_asked_for_and_the_answer_is_what_the_server_gave(self, server):
        texts = ["Buys coffee.", "Has a dog."]
        assert np.allclose(Endpoint("m", server.base_url).embed_notes(texts), HashEmbedder().embed_notes(texts))
        (request,) = server.requests
        assert request.path == "/v1/embeddings"
        assert request.body == {"model": "m", "input": texts, "encoding_format": "float"}

    def test_it_works_without_a_key_and_then_sends_none(self, server):
        Endpoint("m", server.base_url).embed_query("x")
        assert "authorization" not in server.requests[0].headers

    def test_the_key_comes_from_the_argument_or_the_environment(self, server, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
        Endpoint("m", server.base_url).embed_query("x")
        Endpoint("m", server.base_url, KEY).embed_query("x")
        sent = [request.headers["authorization"] for request in server.requests]
        assert sent == ["Bearer from-environment", f"Bearer {KEY}"]

    @pytest.mark.parametrize(
        ("model", "query", "note"),
        [
            ("nomic-embed-text:latest", "search_query: x", "search_document: x"),
            ("intfloat/multilingual-e5-small", "query: x", "passage: x"),
            ("mxbai-embed-large", "Represent this sentence for searching relevant passages: x", "x"),
            ("BAAI/bge-small-en-v1.5", "Represent this sentence for searching relevant passages: x", "x"),
            ("bge-m3", "x", "x"),
            ("text-embedding-3-small", "x", "x"),
            ("multilingual-e5-large-instruct", "x", "x"),
        ],
    )
    def test_r52_the_prefixes_that_a_models_card_asks_for(self, server, model, query, note):
        embedder = Endpoint(model, server.base_url)
        embedder.embed_query("x")
        embedder.embed_notes(["x"])
        assert server.texts == [query, note]

    def test_r52_the_arguments_override_them_and_are_part_of_the_id(self, server):
        plain = Endpoint("nomic-embed-text", server.base_url, query_prefix="", note_prefix="")
        mine = Endpoint("nomic-embed-text", server.base_url, query_prefix="q> ", note_prefix="n> ")
        plain.embed_query("x")
        mine.embed_query("x")
        mine.embed_notes(["x"])
        assert server.texts == ["x", "q> x", "n> x"]
        assert len({plain.id, mine.id, Endpoint("nomic-embed-text", server.base_url).id}) == 3

    def test_lone_surrogates_and_nul_never_reach_the_server(self, server):
        Endpoint("m", server.base_url).embed_notes(["half \ud83d pair", "a\0b"])
        assert server.texts == ["half \ufffd pair", "a b"]

    def test_dimensions_are_asked_of_models_that_know_them(self, server):
        Endpoint("text-embedding-3-large", server.base_url, dim=64).embed_query("x")
        Endpoint("m", server.base_url, dim=64).embed_query("x")
        assert [request.body.get("dimensions") for request in server.requests] == [64, None]

    def test_a_connection_is_used_again(self, server):
        embedder = Endpoint("m", server.base_url)
        for _ in range(3):
            embedder.embed_query("x")
        assert len(server._server.connections) == 1


class TestBatches:
    def test_r14_one_request_for_a_batch_and_none_for_nothing(self, server):
        embedder = Endpoint("m", server.base_url)
        assert embedder.embed_notes([]).shape[0] == 0
        assert server.requests == []
        embedder.embed_notes([f"note {i}" for i in range(64)])
        assert len(server.requests) == 1

    def test_r14_the_size_is_learned_from_the_first_answer_without_another_request(self, server):
        embedder = Endpoint("m", server.base_url)
        embedder.embed_query("x")
        assert (embedder.dim, len(server.requests)) == (64, 1)
        assert (Endpoint("m", server.base_url).dim, len(server.requests)) == (64, 2)

    def test_rw_022_batches_respect_both_limits(self):
        with LoopbackEndpoint(max_items=20, max_tokens=3000) as server:
            embedder = Endpoint("m", server.base_url, max_batch=20, max_batch_chars=10_000)
            notes = [f"note {i} " + "word " * (i % 400) for i in range(400)]
            assert np.allclose(embedder.embed_notes(notes), HashEmbedder().embed_notes(notes), atol=1e-6)
            assert server.texts == notes  # each once, none refused
            assert max(len(request.body["input"]) for request in server.requests) == 20

    def test_rw_022_a_batch_beyond_an_unknown_limit_is_halved_until_it_passes(self):
        with LoopbackEndpoint(max_items=5) as server:
            notes = [f"note {i}" for i in range(64)]
            out = Endpoint("m", server.base_url).embed_notes(notes)
            assert np.allclose(out, HashEmbedder().embed_notes(notes), atol=1e-6)

    @pytest.mark.parametrize("bad", [[0], [7], [63], [0, 1], [0, 31, 32]])
    def test_rw_022_one_bad_item_fails_alone_with_its_place(self, bad):
        with LoopbackEndpoint(refuses="poison") as server:
            notes = [f"poison {i}" if i in bad else f"note {i}" for i in range(64)]
            with pytest.raises(EmbedderError, match=f"invalid input.*text {bad[0] + 1} of 64; {len(bad)} failed") as e:
                Endpoint("m", server.base_url).embed_notes(notes)
            vectors, causes = arrived(e.value)
            assert sorted(causes) == bad == [i for i, v in enumerate(vectors) if v is None]
            assert np.allclose(vectors[5], HashEmbedder().embed_notes(["note 5"])[0], atol=1e-6)

    def test_a_server_that_refuses_everything_is_not_asked_once_for_each_text(self, server):
        server.always = Fault(400, {}, '{"error": {"message": "no such model"}}')
        with pytest.raises(EmbedderError, match=r"no such model.*64 failed"):
            Endpoint("m", server.base_url).embed_notes([f"note {i}" for i in range(64)])
        assert len(server.requests) == 8  # 64, 32, ... 1, and one harmless text

    def test_rw_019_a_text_too_long_for_the_model_is_embedded_in_parts(self):
        with LoopbackEndpoint(dim=512, max_text_tokens=120) as server:
            parts = ["the safe code is 4471", "filler " * 300, "his cat is named Mr Pym"]
            vector = Endpoint("m", server.base_url).embed_notes(["before", " ".join(parts)])[1]
            assert vector.shape == (512,)
            for asked in (parts[0], parts[2]):
                assert vector @ HashEmbedder(512).embed_query(asked) > 0

    def test_one_bad_vector_of_a_batch_hurts_no_other_r45(self, server):
        server.fail("last one NaN")
        with pytest.raises(EmbedderError, match=r"nan.*text 3 of 3; 1 failed") as e:
            Endpoint("m", server.base_url).embed_notes(["a", "b", "c"])
        assert [v is None for v in arrived(e.value)[0]] == [False, False, True]

    def test_after_a_batch_that_took_too_long_the_next_is_smaller(self, server):
        embedder = Endpoint("m", server.base_url, timeout=0.3)
        embedder.embed_query("warm up")
        server.fail("silent")
        with pytest.raises(EmbedderError, match="no answer to 8 texts"):
            embedder.embed_notes([f"note {i}" for i in range(8)])
        embedder.embed_notes([f"note {i}" for i in range(8)])
        assert [len(request.body["input"]) for request in server.requests] == [1, 8, 4, 4]


class TestAnswers:
    @pytest.mark.parametrize("fault", ["shuffled", "no index", "base64", "denormal", "huge"])
    def test_what_can_be_read_for_sure_is_read(self, server, fault):
        server.fail(fault)
        texts = ["Buys coffee.", "Has a dog.", "Plays the cello."]
        assert np.allclose(Endpoint("m", server.base_url).embed_notes(texts), HashEmbedder().embed_notes(texts))

    @pytest.mark.parametrize(
        ("fault", "says"),
        [
            ("html", "no list of vectors: '<!doctype html>"),
            ("empty body", "an empty body"),
            ("null", "'null'"),
            ("cut json", "no list of vectors"),
            ("null data", "no list of vectors"),
            ("no data", "0 vectors came for 2 texts"),
            ("one less", "1 vectors came for 2 texts"),
            ("one more", "3 vectors came for 2 texts"),
            ("same index", "numbered"),
            ("NaN", "nan at place 0"),
            ("infinite", "inf at place 0"),
            ("zero", "zeros"),
            ("words", "'much' where a number"),
            ("empty vectors", "where a vector was expected"),
            ("per token", "pooling"),
            ("endless", "larger than"),
        ],
    )
    def test_r44_r45_what_cannot_is_refused_with_its_cause_and_not_asked_again(self, server, fault, says):
        server.fail(fault)
        with pytest.raises(EmbedderError, match=says):
            Endpoint("m", server.base_url).embed_notes(["Buys coffee.", "Has a dog."])
        assert len(server.requests) == 1

    @pytest.mark.parametrize(
        "body", ["[" * 100_000, "9" * 5_000, "\x00", '{"data": {"0": []}}', '{"data": [[0.1]]}', '"text"', "﻿{}"]
    )
    def test_no_json_however_odd_gets_through(self, server, body):
        server.fail(Fault(200, {}, body))
        with pytest.raises(EmbedderError):
            Endpoint("m", server.base_url).embed_query("x")

    def test_an_error_in_a_200_is_an_error(self, server):
        server.always = Fault(200, {}, '{"error": {"message": "model crashed"}}')
        with pytest.raises(EmbedderError, match="model crashed"):
            Endpoint("m", server.base_url).embed_query("x")

    def test_r46_another_size_than_before_is_refused(self, server):
        embedder = Endpoint("m", server.base_url)
        embedder.embed_query("x")
        server.fail("other size")
        with pytest.raises(EmbedderError, match=r"65 numbers, expected 64.*reembed"):
            embedder.embed_query("x")

    def test_r46_another_size_than_stated_is_refused(self, server):
        with pytest.raises(EmbedderError, match="64 numbers, expected 32"):
            Endpoint("m", server.base_url, dim=32).embed_query("x")


class TestRetries:
    @pytest.mark.parametrize("fault", ["busy", "loading", "loading 500", "bad gateway", "down", Fault(504)])
    def test_r29_what_passes_is_asked_again(self, server, waits, fault):
        server.fail(fault, fault)
        assert Endpoint("m", server.base_url).embed_query("x").shape == (64,)
        assert len(server.requests) == 3
        assert 0.125 <= waits[0] <= 0.375
        assert 0.25 <= waits[1] <= 0.75

    @pytest.mark.parametrize("fault", ["unauthorized", "forbidden", "not found", "broken", "no quota", Fault(501)])
    def test_r29_what_does_not_is_not(self, server, waits, fault):
        server.fail(fault)
        with pytest.raises(EmbedderError, match=r"40[134]|50[01]|429"):
            Endpoint("m", server.base_url).embed_query("x")
        assert (len(server.requests), waits) == (1, [])

    def test_r29_a_refused_text_is_not_asked_again(self, server, waits):
        server.fail(Fault(400, {}, '{"detail": "no"}'))
        with pytest.raises(EmbedderError, match="400: no"):
            Endpoint("m", server.base_url).embed_query("x")
        assert (len(server.requests), waits) == (1, [])

    def test_r29_tries_are_bounded(self, server, waits):
        server.always = Fault(503)
        with pytest.raises(EmbedderError, match="gave up at try 6 of 6"):
            Endpoint("m", server.base_url, timeout=100).embed_query("x")
        assert len(server.requests) == 6

    def test_r29_retry_after_in_seconds_is_honoured(self, server, waits):
        server.fail("busy 2 s")
        Endpoint("m", server.base_url).embed_query("x")
        assert waits == [2.0]

    def test_r29_retry_after_as_a_date_is_honoured(self, server, waits):
        when = format_datetime(datetime.now(UTC) + timedelta(seconds=5), usegmt=True)
        server.fail(Fault(429, {"Retry-After": when}))
        Endpoint("m", server.base_url).embed_query("x")
        assert 3 < waits[0] <= 5

    @pytest.mark.parametrize("odd", ["soon", "", "nan", "-5", "Thu, 99 Foo"])
    def test_r29_a_retry_after_that_cannot_be_read_is_not_waited_for(self, server, waits, odd):
        server.fail(Fault(429, {"Retry-After": odd}))
        Endpoint("m", server.base_url).embed_query("x")
        assert waits[0] < 1

    @pytest.mark.parametrize("absurd", ["1000000000", "11", "inf", "Fri, 31 Dec 9999 23:59:59 GMT"])
    def test_r29_a_retry_after_beyond_the_limit_ends_it_at_once(self, server, waits, absurd):
        server.fail(Fault(429, {"Retry-After": absurd}))
        with pytest.raises(EmbedderError, match="the limit is 10 s and it asks to wait"):
            Endpoint("m", server.base_url).embed_query("x")
        assert (len(server.requests), waits) == (1, [])

    def test_rw_047_200_notes_through_a_busy_server_each_once(self, server, waits):
        server.fail(*["ok", "ok", "busy 2 s", "ok", "loading"] * 20)
        notes = [f"note {i}" for i in range(200)]
        out = Endpoint("m", server.base_url, max_batch=10).embed_notes(notes)
        assert np.allclose(out, HashEmbedder().embed_notes(notes), atol=1e-6)

    def test_rw_047_giving_up_says_which_are_in_and_stops_asking(self, server, waits):
        server.fail("ok", "ok", "unauthorized")
        with pytest.raises(EmbedderError, match="text 21 of 100; 80 failed") as e:
            Endpoint("m", server.base_url, max_batch=10).embed_notes([f"note {i}" for i in range(100)])
        assert [i for i, v in enumerate(arrived(e.value)[0]) if v is None] == list(range(20, 100))
        assert len(server.requests) == 3


class TestLimits:
    @pytest.mark.parametrize("fault", ["silent", "dripping", Fault(delay=5), Fault(503, delay=5)])
    def test_rw_048_no_server_can_hold_a_call_longer_than_its_limit(self, server, fault):
        embedder = Endpoint("m", server.base_url, timeout=0.5)
        embedder.embed_query("warm up")
        server.fail(fault)
        began = time.monotonic()
        with pytest.raises(EmbedderError, match=r"a question at http://127.*model m.*limit of 0.5 s"):
            embedder.embed_query("x")
        assert time.monotonic() - began < 1.5
        assert embedder.embed_query("x").shape == (64,)  # and the next call starts afresh

    def test_rw_048_the_abandoned_request_ends_too(self, server):
        embedder = Endpoint("m", server.base_url, timeout=0.3)
        server.fail("dripping")
        with pytest.raises(EmbedderError):
            embedder.embed_query("x")
        for thread in threading.enumerate():
            if thread.name == "diarist-embeddings":
                thread.join(5)
                assert not thread.is_alive()

    def test_a_server_that_is_down_costs_less_than_the_limit(self, waits):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
            address = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
            with pytest.raises(EmbedderError, match=r"connection failed.*try 3 of 3"):
                Endpoint("m", address).embed_query("x")
        assert sum(waits) < 2

    def test_an_error_body_is_not_read_whole(self, server):
        server.fail(Fault(500, {}, b"x" * 5_000_000))
        with pytest.raises(EmbedderError) as e:
            Endpoint("m", server.base_url).embed_query("x")
        assert len(str(e.value)) < 600

    @pytest.mark.parametrize("name", ["timeout", "max_batch", "max_batch_chars"])
    def test_limits_are_above_zero(self, name):
        with pytest.raises(ValueError, match=name):
            Endpoint("m", **{name: 0})

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_child_opens_its_own_connection(self, server):
        embedder = Endpoint("m", server.base_url)
        embedder.embed_query("x")
        child = os.fork()
        if child == 0:
            code = 3
            try:
                code = 0 if embedder.embed_query("y").shape == (64,) else 4
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert embedder.embed_query("z").shape == (64,)

    def test_threads_share_it(self, server):
        embedder = Endpoint("m", server.base_url)
        got: dict[int, np.ndarray] = {}
        threads = [
            threading.Thread(target=lambda i=i: got.update({i: embedder.embed_query(f"note {i}")})) for i in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert np.allclose(
            np.stack([got[i] for i in range(8)]), HashEmbedder().embed_notes([f"note {i}" for i in range(8)])
        )


class TestSafety:
    @pytest.mark.parametrize(
        ("address", "says"),
        [
            ("file:///etc/passwd", "http"),
            ("gopher://127.0.0.1/", "http"),
            ("localhost:8080", "http"),
            ("http://", "host"),
            ("http://host:port/v1", "URL"),
            ("http://user:hunter2@host/v1", "password"),
            ("http://user@host/v1", "password"),
            ("http://host/v1?key=1", r"\?"),
            ("http://169.254.169.254/latest", "link-local"),
            ("http://169.254.1.1./v1", "link-local"),
            ("http://[::ffff:169.254.169.254]/v1", "link-local"),
            ("http://[::ffff:a9fe:a9fe]/v1", "link-local"),
            ("http://[64:ff9b::a9fe:a9fe]/v1", "link-local"),
            ("http://[fe80::1]/v1", "link-local"),
            ("http://[fd00:ec2::254]/v1", "link-local"),
            ("http://2852039166/v1", "link-local"),
            ("http://0xA9FEA9FE/v1", "link-local"),
            ("http://0251.0376.0251.0376/v1", "link-local"),
            ("http://１６９.254.169.254/v1", "link-local"),
        ],
    )
    def test_addresses_that_are_not_safe_to_call_are_refused(self, address, says):
        with pytest.raises(ValueError, match=says) as e:
            Endpoint("m", address)
        assert "hunter2" not in str(e.value)

    def test_a_name_that_leads_to_a_link_local_address_is_refused_before_anything_is_sent(self, server, monkeypatch):
        monkeypatch.setattr(wire, "_is_metadata", lambda address: address.is_loopback)
        address = server.base_url.replace("127.0.0.1", "localhost")
        with pytest.raises(EmbedderError, match="link-local"):
            Endpoint("m", address, KEY).embed_query("x")
        assert server.requests == []

    @pytest.mark.parametrize("status", [301, 302, 307, 308])
    def test_a_redirect_to_another_host_is_not_followed_and_the_key_stays_here(self, server, status):
        with LoopbackEndpoint() as other:
            server.fail(Fault(status, {"Location": other.base_url + "/embeddings"}))
            with pytest.raises(EmbedderError, match=f"redirected.*{other.base_url}.*not followed"):
                Endpoint("m", server.base_url, KEY).embed_query("x")
            assert other.requests == []

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503])
    def test_no_message_holds_the_key_even_if_the_server_repeats_it(self, server, waits, status):
        server.always = Fault(status, {}, json.dumps({"error": {"message": f"bad key {KEY}"}}))
        with pytest.raises(EmbedderError) as e:
            Endpoint("m", server.base_url, KEY).embed_query("x")
        assert KEY not in str(e.value)
        if status in {401, 403}:
            assert "OPENAI_API_KEY" in str(e.value)

    def test_id_and_repr_hold_no_key(self):
        embedder = Endpoint("m", "http://localhost/v1", KEY)
        assert KEY not in embedder.id + repr(embedder)

    def test_r46_ids_tell_models_hosts_and_sizes_apart(self):
        ids = {
            Endpoint("m", "http://a/v1").id,
            Endpoint("n", "http://a/v1").id,
            Endpoint("m", "http://a:1/v1").id,
            Endpoint("m", "http://a/v2").id,
            Endpoint("m", "http://a/v1", dim=3).id,
        }
        assert len(ids) == 5
        assert Endpoint("m", "http://A/v1/").id == Endpoint("m", "https://a/v1").id == "openai:m@a/v1"
