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
    for name, content in {"a": b"abc", "b": b"", "c": b"defghij", "d": b"klm"}.items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(content)
    return Text(paths, 3)


def test_a_row_is_a_cut_of_a_file(text: Text) -> None:
    """What is left behind the last whole row of a file is no row. The data set has the same rows."""
    assert len(text) == 4
    rows = [bytes(text[number]) for number in range(4)]
    assert rows == [b"abc", b"def", b"ghi", b"klm"]
    batches = batches_of(text, 2, seed=0).loader(rank=0, size=1)
    found = [row for batch in batches for row in zip(batch.ids.tolist(), map(bytes, batch["tokens"]), strict=True)]
    assert sorted(found) == list(enumerate(rows))


def test_ranks_together_read_the_rows_of_one() -> None:
    """Batches follow from the seed, over epochs, on any number of ranks; none has a row that is padding."""
    text = Text.of_standard_library(17)

    def read(rank: int, size: int, seed: int) -> list[np.ndarray]:
        loader = batches_of(text, 24, seed=seed).loader(rank=rank, size=size)
        return [batch["tokens"] for batch in islice(loader, 20)]

    alone = read(0, 1, seed=1)
    parts = [read(rank, 4, seed=1) for rank in range(4)]
    for step, whole in enumerate(alone):
        np.testing.assert_array_equal(np.concatenate([part[step] for part in parts]), whole)
    assert (read(0, 1, seed=2)[0] != alone[0]).any()


def test_what_a_model_writes_cannot_move_a_cursor() -> None:
    """Newlines stay; escapes, bells and bytes that are no text are dots."""
    assert readable(b"a\tb\n\x1b[2J\x07\xff~") == "a·b\n·[2J··~"
