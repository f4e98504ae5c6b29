"""`calibrate`: a user's own embedder has a scale of its own, and recall is judged on it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from diarist import EmbedderError, Memory
from diarist.cli import main
from diarist.embedders import bundled, scale
from diarist.testing import HashEmbedder


class Crowded(HashEmbedder):
    """As some models are: any two texts are near each other."""

    def __init__(self):
        super().__init__(id="crowded-1")

    def embed_notes(self, texts, /):
        return self._crowd(super().embed_notes(texts))

    def embed_query(self, text, /):
        return self._crowd(super().embed_query(text)[None])[0]

    def _crowd(self, vectors):
        vectors = vectors * 0.4
        vectors[:, 0] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_the_everyday_set_is_sound():
    held = scale.everyday()
    assert [each["lang"] for each in held] == ["en"] * 30 + ["fr"] * 30 + ["es"] * 30
    assert len({each["note"] for each in held}) == len({each["question"] for each in held}) == 90


@pytest.mark.skipif(not bundled._e5_runs(), reason="the figures are those of the pair")
def test_the_bundled_pair_says_of_itself_what_is_measured():
    embedder = bundled.bundled()
    found = scale.measure(embedder)
    assert found.first > 0.55
    assert found.apart > 2.7
    assert found.scale.mean == pytest.approx(embedder.background[0], abs=0.05)
    assert found.scale.spread == pytest.approx(embedder.background[1], abs=0.04)
    assert found.scale.same == pytest.approx(scale.UNKNOWN.same, abs=0.04)


def test_it_is_kept_with_the_memory_by_embedder(tmp_path):
    with Memory(tmp_path / "m", embedder=Crowded()) as memory:
        assert memory.scale == scale.UNKNOWN
        found = memory.calibrate()
        assert found.scale.mean > 0.8  # these models call everything near
        assert found.scale.same > 0.9
        assert memory.scale == found.scale
    with Memory(tmp_path / "m", embedder=Crowded()) as memory:
        assert memory.scale == found.scale
    with Memory(tmp_path / "m", embedder=HashEmbedder()) as other:
        assert other.scale != found.scale


def test_what_is_near_by_habit_no_longer_counts(tmp_path):
    """Before, a cosine of .9 spoke for a note; measured, it is what any note reaches."""
    with Memory(tmp_path / "m", embedder=Crowded()) as memory:
        diary = memory.diary("c-1")
        for each in scale.everyday()[:30]:
            diary.remember(each["note"])
        before = meaning(diary.recall("zzz qqq"))
        memory.calibrate()
        after = meaning(diary.recall("zzz qqq"))
    assert before > 1.5
    assert after < before / 2


def meaning(found):
    return sum(part.value for part in found[0].why if part.name == "meaning")


def test_own_pairs(tmp_path):
    pairs = [(f"The plumber's number {n} is on the door", f"Where is plumber {n}?") for n in range(12)]
    with Memory(tmp_path / "m", embedder=HashEmbedder()) as memory:
        assert memory.calibrate(pairs).questions == 12
        with pytest.raises(ValueError, match="9 pairs of a note and its question are too few"):
            memory.calibrate(pairs[:9])
        assert memory.scale.mean == scale.measure(HashEmbedder(), pairs).scale.mean


def test_an_embedder_that_is_down_changes_nothing(tmp_path):
    class Down(HashEmbedder):
        def embed_notes(self, texts, /):
            raise EmbedderError("it is down")

    with Memory(tmp_path / "m", embedder=Down()) as memory:
        with pytest.raises(EmbedderError, match="it is down"):
            memory.calibrate()
        assert memory.scale == scale.UNKNOWN
    assert not (tmp_path / "m").exists()


def test_a_model_that_gives_the_same_for_all_has_a_scale_all_the_same(tmp_path):
    class Constant(HashEmbedder):
        def embed_notes(self, texts, /):
            return np.ones((len(texts), self.dim), np.float32)

        def embed_query(self, text, /):
            return np.ones(self.dim, np.float32)

    found = scale.measure(Constant())
    assert found.scale.spread > 0
    assert found.apart == pytest.approx(0, abs=1e-3)


def test_damaged_settings_are_said_and_left(tmp_path):
    place = tmp_path / "m"
    with Memory(place, embedder=Crowded()) as memory:
        memory.calibrate()
        memory.diary("c-1").remember("Ships to Rosario.")
    (place / "settings.json").write_text("{oh no")
    with Memory(place, embedder=Crowded()) as memory:
        with pytest.raises(Exception, match=r"settings\.json: is not JSON"):
            memory.diary("c-1").recall("Where to?")
        assert memory.diary("c-1").notes()
        [ill] = [finding for finding in memory.diary("c-1").doctor() if not finding.well]
        assert (ill.subject, "settings.json: is not JSON" in ill.text) == ("calibration", True)


@pytest.fixture
def diarist(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("diarist.memory.open_embedder", lambda _spec: Crowded())

    def run(*words):
        monkeypatch.setattr("sys.argv", ["diarist", "--memory", str(tmp_path / "m"), *words])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return end.value.code or 0, out, err

    return run


def test_on_the_command_line(diarist, tmp_path):
    diarist("remember", "c-1", "Ships to Rosario.")
    assert "to measure it: diarist calibrate" in diarist("doctor")[1]
    code, out, err = diarist("calibrate", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["embedder"] == "crowded-1"
    assert told["mean"] > 0.8
    assert told["before"] == {"mean": 0.2, "spread": 0.25, "same": 0.8}
    assert "hardly tells an answer" in err
    assert "calibrate" not in diarist("doctor")[1]
    code, out, _ = diarist("calibrate")
    assert "usual cosine" in out
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("\n".join(json.dumps({"note": f"Note {n} here", "question": f"What of {n}?"}) for n in range(10)))
    assert diarist("calibrate", str(pairs), "--json")[0] == 0
    pairs.write_text('{"note": "x"}\n')
    code, out, err = diarist("calibrate", str(pairs))
    assert code == 2
    assert "line 1: give" in err
    assert diarist("calibrate", str(tmp_path / "none.jsonl"))[0] != 0
