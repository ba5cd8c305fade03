"""Hold the samples of a block as columns, and gather samples of several such blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import BlockRows
from allranks.data.sample_columns import AnyColumn, Rows, SampleColumns, as_slice, is_lazy, scatter_rows, take_rows

Ids = NDArray[np.int64]


class _Run(NamedTuple):
    """Samples of one block: their rows in the block, and their places in the result."""

    key: int
    rows: Rows
    places: Rows


def _runs_of_blocks(keys: Ids, positions: Ids) -> list[_Run]:
    by_block = np.argsort(keys, kind="stable")
    sorted_keys, sorted_rows = keys[by_block], positions[by_block]
    bounds = [0, *(np.flatnonzero(np.diff(sorted_keys)) + 1).tolist(), len(keys)]
    return [
        _Run(int(sorted_keys[begin]), as_slice(sorted_rows[begin:end]), as_slice(by_block[begin:end]))
        for begin, end in pairwise(bounds if len(keys) else [])
    ]


@dataclass(frozen=True, slots=True)
class ColumnsGatherer:
    """Gathers samples of blocks that are ``BlockColumns``."""

    holds_values: ClassVar[bool] = True

    def gather_columns(self, blocks: Mapping[int, BlockRows], keys: Ids, positions: Ids) -> SampleColumns | None:
        """Return the samples at these positions; None if the blocks have different columns."""
        runs = _runs_of_blocks(keys, positions)
        held = [cast(BlockColumns, blocks[run.key]).columns for run in runs]
        names = tuple(held[0]) if held else ()
        if any(tuple(columns) != names for columns in held):
            return None
        places = [run.places for run in runs]
        made: dict[str, AnyColumn] = {}
        for name in names:
            parts = [take_rows(columns[name], run.rows) for columns, run in zip(held, runs, strict=True)]
            made[name] = scatter_rows(parts, places)
        return SampleColumns(made, len(keys))

    def gather_samples(self, blocks: Mapping[int, BlockRows], keys: Ids, positions: Ids) -> list[Any]:
        found = self.gather_columns(blocks, keys, positions)
        if found is not None:
            return list(found)
        runs = _runs_of_blocks(keys, positions)
        parts = [list(cast(BlockColumns, blocks[run.key]).select(run.rows)) for run in runs]
        return cast(list[Any], scatter_rows(parts, [run.places for run in runs]))

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

    def positions_of(self, rows: Ids) -> Ids:
        return rows

    def take(self, rows: Ids) -> list[Any]:
        return list(self.select(as_slice(rows)))

    def select(self, rows: Rows) -> SampleColumns:
        """Return the samples of these rows."""
        found = {name: take_rows(column, rows) for name, column in self.columns.items()}
        return SampleColumns(found, len(next(iter(found.values()))))
