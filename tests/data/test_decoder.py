"""Samples are decoded in the order in which they are asked for, whatever blocks they lie in."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("orjson")

from allranks.data.sources.jsonl import jsonl
from allranks.data.sources.text import text
from allranks.data.step_chunks import Ids, SampleDecoder

pytestmark = pytest.mark.needs("orjson")


def test_samples_come_in_the_order_in_which_they_are_asked_for(tmp_path: Path) -> None:
    """Of many blocks at once; a line that cannot be decoded is Bad in its place, and says where it stands."""
    lines = [
        f'{{"id": {number}, "text": "{"x" * (7 * number % 50 if number != 70 else 5000)}"}}' for number in range(200)
    ]
    lines[30] = "no JSON"
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    source = jsonl(str(tmp_path / "a.jsonl"), block_bytes=100, cache=str(tmp_path / "cache"))
    index = source.index()
    reader = source.open(index)
    blocks = {number: reader.read(number) for number in range(len(index))}
    keys: Ids = np.repeat(np.arange(len(index)), index.rows)
    positions = np.concatenate([block.positions_of(np.arange(index.rows[key])) for key, block in blocks.items()])
    order = np.random.default_rng(0).permutation(len(keys))
    found = SampleDecoder(blocks).decode_samples(keys[order], positions[order])
    for row, sample in zip(order.tolist(), found, strict=True):
        if row == 30:
            assert re.search(r"a\.jsonl: line \d of the block at byte [\d,]+ is no JSON", sample.why)
        else:
            assert sample["id"] == row
            assert len(sample["text"]) == (7 * row % 50 if row != 70 else 5000)


def test_lines_of_two_formats_are_told_apart(tmp_path: Path) -> None:
    """A mixture's blocks are decoded together, each in its own way."""
    (tmp_path / "a.jsonl").write_text("".join(f"{number}\n" for number in range(50)))
    (tmp_path / "a.txt").write_text("".join(f"{number}\n" for number in range(50)))
    blocks = {}
    for source in (jsonl(str(tmp_path / "a.jsonl")), text(str(tmp_path / "a.txt"))):
        blocks[len(blocks)] = source.open(source.index()).read(0)
    keys = np.tile([0, 1, -1], 50)
    positions = np.stack([*(blocks[key].positions_of(np.arange(50)) for key in (0, 1)), np.full(50, -1)], 1).ravel()
    found = SampleDecoder(blocks).decode_samples(keys, positions)
    assert found[0::3] == list(range(50))
    assert found[1::3] == [str(number) for number in range(50)]
    assert all(sample.why.startswith("padding") for sample in found[2::3])
