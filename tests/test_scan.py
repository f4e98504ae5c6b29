"""Fast at a million notes: the bits find what the vectors would, and the arrays follow every write."""

from __future__ import annotations

import numpy as np
import pytest

from diarist import held, recall, scan
from diarist.stores import Filter
from support import OWNER, opened

DIM = 128


class Given:
    """An embedder that looks up what it was given."""

    id, dim = f"given-{DIM}", DIM

    def __init__(self):
        self.vectors = {}

    def embed_notes(self, texts):
        return np.stack([self.vectors[text] for text in texts])

    def embed_query(self, text):
        return self.vectors[text]


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def crowded(count, seed=1):
    """Unit vectors as embedders make them: with a direction in common, and in groups."""
    rng = np.random.default_rng(seed)
    groups, shared = rng.standard_normal((50, DIM)), np.full(DIM, 0.4)
    return unit(shared + groups[rng.integers(0, 50, count)] + rng.standard_normal((count, DIM)))


@pytest.fixture(params=["halves", "bits alone"])
def few(request, monkeypatch):
    """As if 200 notes were too many to hold their vectors, and for some 220 too many to hold halves."""
    monkeypatch.setattr(scan, "HALVES", 220 if request.param == "bits alone" else 5_000)
    monkeypatch.setattr(scan, "EXACT", 200)
    monkeypatch.setattr(recall, "ALL", 200)


def filled(place, count, embedder):
    memory = opened(place, embedder=embedder)
    texts = [f"Note number {number} about tea." for number in range(count)]
    embedder.vectors |= dict(zip(texts, crowded(count), strict=True))
    memory.diary(OWNER).remember_many(texts)
    return memory, texts


def seqs_of(diary):
    return diary._store.select(Filter(now=diary._memory.now())).tolist()


def nearest_texts(diary, vector, count=10):
    seqs = diary._memory.nearest(diary._store).cosines(vector).best(count)
    entries = {entry.seq: entry.note.text for entry in diary._store.entries(seqs)}
    return [entries[seq] for seq in seqs]


def test_the_bits_find_what_the_vectors_would(few, monkeypatch, tmp_path):
    """At least .995 of the ten nearest, though only one note in ten is measured."""
    monkeypatch.setattr(scan, "MEASURED", 200)
    embedder = Given()
    memory, texts = filled(tmp_path, 2_000, embedder)
    diary, vectors = memory.diary(OWNER), np.stack([embedder.vectors[text] for text in texts])
    nearest = memory.nearest(diary._store)
    assert not nearest.exact
    assert nearest.nbytes < 2_000 * (DIM // 8 + 8 + (2 * DIM if nearest._halves else 0)) * 1.5
    asked = unit(vectors[::40] + 0.5 * crowded(50, seed=2))
    same = 0
    for query in asked:
        expected = {texts[at] for at in np.argsort(-(vectors @ query))[:10]}
        same += len(expected & set(nearest_texts(diary, query)))
    assert same / (10 * len(asked)) >= 0.995
    memory.close()


def test_beyond_the_border_an_answer_is_the_same(few, monkeypatch, tmp_path):
    """The same hits with the same scores, whether every note is judged or those that words and bits propose."""
    embedder = Given()
    memory, texts = filled(tmp_path, 1_000, embedder)
    question = "Which tea is number 321?"
    embedder.vectors[question] = unit(embedder.vectors[texts[321]] + 0.1 * crowded(1)[0])
    rough = memory.diary(OWNER).recall(question)
    monkeypatch.setattr(scan, "EXACT", 50_000)
    monkeypatch.setattr(recall, "ALL", 50_000)
    with opened(tmp_path, embedder=embedder) as again:
        exact = again.diary(OWNER).recall(question)
    assert [hit.note.id for hit in rough] == [hit.note.id for hit in exact]
    assert [hit.score for hit in rough] == pytest.approx([hit.score for hit in exact], abs=1e-4)
    memory.close()


@pytest.mark.parametrize("count", [150, 199, 260])
def test_the_arrays_follow_writes_of_this_and_another_process(few, count, tmp_path):
    """New notes are found, forgotten ones are not, on both sides of the border and across it."""
    embedder = Given()
    memory, texts = filled(tmp_path, count, embedder)
    diary = memory.diary(OWNER)
    new = unit(np.random.default_rng(9).standard_normal((60, DIM)))
    memory.nearest(diary._store)
    with opened(tmp_path, embedder=embedder) as other:
        for number, vector in enumerate(new):
            text = f"A new one, {number}."
            embedder.vectors[text] = vector
            (diary if number % 2 else other.diary(OWNER)).remember(text)
            assert nearest_texts(diary, vector, 1) == [text]
        ids = {note.text: note.id for note in diary.notes()}
        other.diary(OWNER).forget([ids[text] for text in (*texts[:40], "A new one, 7.")])
    gone = nearest_texts(diary, new[7], 1)
    assert gone != ["A new one, 7."]
    nearest = memory.nearest(diary._store)
    assert sorted(nearest.seqs.tolist()) == sorted(seqs_of(diary))
    assert nearest.exact == (count + 60 - 41 <= 200)
    fresh = opened(tmp_path, embedder=embedder)
    assert nearest_texts(fresh.diary(OWNER), new[8], 5) == nearest_texts(diary, new[8], 5)
    fresh.close()
    memory.close()


def test_a_note_behind_the_end_moves_nothing(tmp_path):
    """The cost of a write does not grow with the diary: the arrays have room."""
    embedder = Given()
    memory, _ = filled(tmp_path, 100, embedder)
    diary = memory.diary(OWNER)
    nearest = memory.nearest(diary._store)
    embedder.vectors |= {f"More {number}.": vector for number, vector in enumerate(crowded(5, seed=3))}
    diary.remember("More 0.")
    before = memory.nearest(diary._store)._room
    for number in range(1, 5):
        diary.remember(f"More {number}.")
        memory.nearest(diary._store)
    assert all(old is new for old, new in zip(before, nearest._room, strict=True))
    assert len(nearest.seqs) == 105
    memory.close()


def test_numbers_in_half_precision_come_back_as_they_were_kept():
    """Every finite float16, the tiny ones too; what is no number is told."""
    every = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    half = every[np.isfinite(every.view(np.float16))]
    rows = np.stack([half, np.full(len(half), 0x3C00, np.uint16)], axis=1)  # beside a 1, so that none is a zero vector
    found, good = scan._single(rows.copy())
    wide = rows.view(np.float16).astype(np.float64)
    assert good.all()
    assert found == pytest.approx(wide / np.linalg.norm(wide, axis=1, keepdims=True), abs=1e-6)
    bad = np.array([[0x7C00, 0x3C00], [0x7E00, 0x3C00], [0, 0x8000], [0x3C00, 0]], np.uint16)
    assert scan._single(bad)[1].tolist() == [False, False, False, True]


def test_owners_opened_in_turn_stay_within_the_memory(monkeypatch, tmp_path):
    """What was not asked for longest is let go first, and loaded again when it is asked for."""
    monkeypatch.setattr(held, "MOST_BYTES", 200_000)
    embedder = Given()
    vectors = crowded(30, seed=4)
    embedder.vectors |= {f"Note {number}.": vector for number, vector in enumerate(vectors)}
    with opened(tmp_path, embedder=embedder) as memory:
        for number in range(40):
            memory.diary(f"owner {number}").remember_many([f"Note {each}." for each in range(30)])
        for number in range(200):
            found = memory.diary(f"owner {number % 40}").recall(f"Note {number % 30}.", limit=1)
            assert found[0].note.text == f"Note {number % 30}."
            assert memory.held.nbytes <= 200_000
        assert memory.held.nbytes > 150_000
