"""Sources made of numbers, for the tests of the data part: the sample with id i is the number i."""

from __future__ import annotations

import numpy as np

from allranks.data.index import DatasetIndex, SourceFile


def index_of(rows, *, sample_bytes: int = 100) -> DatasetIndex:
    """An index of one file with these many samples in its blocks."""
    rows = [int(count) for count in rows]
    blocks = [(0, number, number + 1, count, 0) for number, count in enumerate(rows)]
    return DatasetIndex.from_blocks("numbers", [SourceFile("numbers", max(sum(rows), 1) * sample_bytes, "")], blocks)


def uneven(samples: int, *, seed: int = 0, most: int = 40) -> DatasetIndex:
    """An index of ``samples`` samples in blocks of 1 to ``most``."""
    dice, rows = np.random.default_rng(seed), []
    while sum(rows) < samples:
        rows.append(min(int(dice.integers(1, most + 1)), samples - sum(rows)))
    return index_of(rows)


class Numbers:
    """Reads blocks of an index; counts how often each was read."""

    def __init__(self, index: DatasetIndex) -> None:
        self.index = index
        self.reads = [0] * len(index)

    @property
    def bytes_read(self) -> int:
        return sum(self.reads)

    def hint(self, _block: int) -> bool:
        return False

    def read(self, block: int) -> Block:
        self.reads[block] += 1
        return Block(int(self.index.first_ids[block] - self.index.skip[block]))


class Block:
    def __init__(self, first: int) -> None:
        self.first = first

    def take(self, rows):
        return [self.first + row for row in rows.tolist()]
