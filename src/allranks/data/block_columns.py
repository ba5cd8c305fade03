"""Hold the samples of a block as columns, and gather samples of several such blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import BlockRows
from allranks.data.sample_columns import AnyColumn, SampleColumns, is_lazy, scatter_rows, take_rows

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ColumnsGatherer:
    """Gathers samples of blocks that are ``BlockColumns``."""

    holds_values: ClassVar[bool] = True

    def gather_columns(self, blocks: Mapping[int, BlockRows], keys: Ids, positions: Ids) -> SampleColumns | None:
        """Return the samples at these positions; None if the blocks have different columns."""
        by_block = np.argsort(keys, kind="stable")
        sorted_keys, sorted_rows = keys[by_block], positions[by_block]
        bounds = [0, *(np.flatnonzero(np.diff(sorted_keys)) + 1).tolist(), len(keys)]
        parts = [
            (cast(BlockColumns, blocks[int(sorted_keys[begin])]).columns, sorted_rows[begin:end])
            for begin, end in pairwise(bounds if len(keys) else [])
        ]
        names = tuple(parts[0][0]) if parts else ()
        if any(tuple(columns) != names for columns, _ in parts):
            return None
        places = [by_block[begin:end] for begin, end in pairwise(bounds)]
        made: dict[str, AnyColumn] = {}
        for name in names:
            made[name] = scatter_rows([take_rows(columns[name], rows) for columns, rows in parts], places)
        return SampleColumns(made, len(keys))

    def gather_samples(self, blocks: Mapping[int, BlockRows], keys: Ids, positions: Ids) -> list[Any]:
        found = self.gather_columns(blocks, keys, positions)
        if found is not None:
            return list(found)
        held = cast(Mapping[int, BlockColumns], blocks)
        return [held[key].samples[row] for key, row in zip(keys.tolist(), positions.tolist(), strict=True)]

    def merge_blocks(self, blocks: Mapping[int, BlockRows], keys: Ids, positions: Ids) -> BlockColumns | None:
        """Return the samples at these positions as one block; None if the blocks have different or lazy columns.

        To copy a lazy column takes as long as to gather it later, and twice its memory.
        """
        if any(map(is_lazy, cast(BlockColumns, next(iter(blocks.values()))).columns.values())):
            return None
        found = self.gather_columns(blocks, keys, positions)
        return None if found is None or found.columns is None else BlockColumns(found.columns, len(found))


@dataclass(frozen=True, slots=True, eq=False)
class BlockColumns:
    """The samples of a block as columns, which all of them have."""

    columns: Mapping[str, AnyColumn]
    count: int
    gatherer: ClassVar[ColumnsGatherer] = ColumnsGatherer()

    @property
    def samples(self) -> SampleColumns:
        return SampleColumns(self.columns, self.count)

    def positions_of(self, rows: Ids) -> Ids:
        return rows

    def take(self, rows: Ids) -> list[Any]:
        return list(SampleColumns({name: take_rows(column, rows) for name, column in self.columns.items()}, len(rows)))
