"""The text of the examples: its rows, and batches that do not depend on the number of ranks."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from jax_fsdp_lm.text import Text, batches_of, readable


@pytest.fixture
def text(tmp_path: Path) -> Text:
    paths = []
    for name, content in {"a": b"abc", "b": b"", "c": b"defghij", "d": b"kl"}.items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(content)
    return Text(paths, 5)


def test_a_piece_of_text_may_lie_in_several_files(text: Text) -> None:
    """Every start and length gives what the files laid end to end give, empty files too."""
    whole = b"abcdefghijkl"
    assert text.ends[-1] == len(whole)
    for start in range(len(whole)):
        for length in range(1, len(whole) - start + 1):
            assert text.read(start, length) == whole[start : start + length]


def test_a_row_is_a_cut_of_the_text(text: Text) -> None:
    """What is left behind the last whole row is no row."""
    assert len(text) == 2
    assert [bytes(text[number]["text"]) for number in range(2)] == [b"abcde", b"fghij"]


def test_ranks_together_read_the_rows_of_one() -> None:
    """Batches follow from the seed, over epochs, on any number of ranks; none has a row that is padding."""
    text = Text.of_standard_library(17)

    def read(rank: int, size: int, seed: int) -> list[np.ndarray]:
        loader = batches_of(text, 24, seed=seed).loader(rank=rank, size=size)
        return [batch["text"] for batch in islice(loader, 20)]

    alone = read(0, 1, seed=1)
    parts = [read(rank, 4, seed=1) for rank in range(4)]
    for step, whole in enumerate(alone):
        np.testing.assert_array_equal(np.concatenate([part[step] for part in parts]), whole)
    assert (read(0, 1, seed=2)[0] != alone[0]).any()


def test_what_a_model_writes_cannot_move_a_cursor() -> None:
    """Newlines stay; escapes, bells and bytes that are no text are dots."""
    assert readable(b"a\tb\n\x1b[2J\x07\xff~") == "a·b\n·[2J··~"
