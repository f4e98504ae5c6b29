"""R15: no write rewrites the diary; RW-023: no size at which search breaks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from diarist.stores import file
from support import OWNER, diary_file, opened, quick_folder

SIZES = (1_000, 20_000)
_WORDS = [f"{a}{b}" for a in ("tea", "dog", "boat", "bee", "rain", "jazz", "moss") for b in range(300)]


def texts(count, seed):
    rng = random.Random(seed)
    return [f"{number}: {' '.join(rng.choices(_WORDS, k=12))}" for number in range(count)]


@pytest.fixture(scope="module")
def grown():
    """A memory that grows from the smaller size to the larger, and what 256 single writes cost at each."""
    with quick_folder() as place, opened(place) as memory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "_CHECKPOINT_AT", 2**40)  # the log is not emptied while it is measured
        diary, costs = memory.diary(OWNER), {}
        written = 0
        for size in SIZES:
            for part in range(0, size - written, 2_000):
                diary.remember_many(texts(min(2_000, size - written - part), (size, part).__hash__()))
            written = size
            memory.close()  # which empties the log
            memory = opened(place)
            diary = memory.diary(OWNER)
            diary.notes(limit=1)
            log = Path(f"{diary_file(place)}-wal")
            before = log.stat().st_size if log.exists() else 0
            for text in texts(256, size + 1):
                diary.remember(f"{size} {text}")
            costs[size] = (log.stat().st_size - before) / 256
            written += 256
        yield memory, costs
        memory.close()


def test_r15_a_note_costs_the_same_in_a_diary_twenty_times_as_large(grown):
    """R15: the growth of the log over 256 single writes, which holds one filing of the words."""
    _, costs = grown
    assert all(20_000 < cost < 120_000 for cost in costs.values()), costs
    assert costs[20_000] < 1.5 * costs[1_000], costs


def test_a_new_diary_takes_little(tmp_path):
    """Store size (DESIGN): one note, closed: at most 48 kB, in one file and an empty lock."""
    with opened(tmp_path) as memory:
        memory.diary(OWNER).remember("Buys 1 kg of Colombia, ground for a moka pot.")
    sizes = {path.name: path.stat().st_size for path in diary_file(tmp_path).parent.iterdir()}
    assert sizes["diary.db"] <= 48 * 1024
    assert sizes == {"diary.db": sizes["diary.db"], "diary.lock": 0}


def test_rw_046_after_close_the_folder_can_be_deleted_at_once(tmp_path):
    """RW-046: no handle is left; also without close, once nothing refers to the memory."""
    import gc
    import os
    import shutil

    place = tmp_path / "Ana Lee's notes"
    memory = opened(place)
    memory.diary(OWNER).remember("Likes tea.")
    memory.close()
    if Path("/proc/self/fd").is_dir():
        assert not [fd for fd in os.listdir("/proc/self/fd") if str(place) in _target(fd)]
    memory = opened(place)
    memory.diary(OWNER).recall("tea")
    del memory
    gc.collect()
    if Path("/proc/self/fd").is_dir():
        assert not [fd for fd in os.listdir("/proc/self/fd") if str(place) in _target(fd)]
    shutil.rmtree(place)


def _target(fd):
    import os

    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def test_rw_023_no_size_is_too_large_and_no_limit_too_silly(grown):
    """RW-023: a small owner beside a large one, thousands of hits, one match under a narrow filter."""
    memory, _ = grown
    large, small = memory.diary(OWNER), memory.diary("small")
    small.remember_many([f"tea0 dog{number}" for number in range(5)])
    assert {hit.note.owner for hit in small.recall("tea0 dog1", limit=50)} == {"small"}
    assert len(small.recall("tea0 dog1", limit=50)) == 5
    assert len(large.recall("tea0 dog1", limit=5_000)) == 1_000
    large.remember("The one match about tea0.", tags=["one"], happened_at="2020-01-01T00:00:00Z")
    for asked in ({"tags": ["one"]}, {"before": "2020-02-01T00:00:00Z"}):
        assert [hit.note.text for hit in large.recall("tea0 dog1", **asked)] == ["The one match about tea0."]
    for limit in (0, -1):
        with pytest.raises(ValueError, match="asks for nothing"):
            large.recall("tea0", limit=limit)
