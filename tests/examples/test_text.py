"""The text of the examples: rows that do not depend on the number of ranks, and a thread that reads ahead."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from jax_fsdp_lm.text import Text, prefetch, readable


@pytest.fixture
def text(tmp_path: Path) -> Text:
    paths = []
    for name, content in {"a": b"abc", "b": b"", "c": b"defghij", "d": b"kl"}.items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(content)
    return Text(paths)


def test_a_piece_of_text_may_lie_in_several_files(text: Text) -> None:
    """Every start and length gives what the files laid end to end give, empty files too."""
    whole = b"abcdefghijkl"
    assert len(text) == len(whole)
    for start in range(len(whole)):
        for length in range(1, len(whole) - start + 1):
            assert text.read(start, length) == whole[start : start + length]


def test_ranks_together_read_the_rows_of_one(text: Text) -> None:
    """Rows follow from seed, step and their number alone; other steps and seeds have others."""
    alone = text.rows(3, range(8), length=5, seed=1)
    parts = [text.rows(3, range(rank * 2, rank * 2 + 2), length=5, seed=1) for rank in range(4)]
    np.testing.assert_array_equal(np.concatenate(parts), alone)
    assert (text.rows(4, range(8), length=5, seed=1) != alone).any()
    assert (text.rows(3, range(8), length=5, seed=2) != alone).any()


def test_prefetch_reads_ahead_and_no_further() -> None:
    """All steps in order; while one is used, ``depth`` wait and one more is in the making."""
    asked = []
    third = threading.Event()

    def make(step: int) -> np.ndarray:
        asked.append(step)
        if step == 3:
            third.set()
        return np.array(step)

    batches = prefetch(make, range(9), depth=2)
    assert next(batches) == 0
    assert third.wait(60)
    assert asked == [0, 1, 2, 3]
    assert [int(batch) for batch in batches] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_what_the_reading_raises_is_raised_in_its_turn() -> None:
    """After the batches before it, and the thread is gone."""

    def make(step: int) -> np.ndarray:
        if step == 2:
            raise OSError("the disk is gone")
        return np.array(step)

    batches = prefetch(make, range(9), depth=4)
    assert [int(next(batches)) for _ in range(2)] == [0, 1]
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches)
    assert "prefetch" not in [thread.name for thread in threading.enumerate()]


def test_a_training_loop_that_stops_early_leaves_no_thread() -> None:
    """Though the thread waits to hand over a batch that nobody will take."""
    batches = prefetch(np.array, range(9), depth=1)
    next(batches)
    batches.close()
    assert "prefetch" not in [thread.name for thread in threading.enumerate()]


def test_what_a_model_writes_cannot_move_a_cursor() -> None:
    """Newlines stay; escapes, bells and bytes that are no text are dots."""
    assert readable(b"a\tb\n\x1b[2J\x07\xff~") == "a·b\n·[2J··~"
