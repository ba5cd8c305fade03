"""From strips to batches: transformed in workers or here, made into columns, cut into steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import Bad
from allranks.data.batch import Batch, Collator, Column
from allranks.data.lanes import PADDING
from allranks.data.ledger import Sum, sums
from allranks.data.plan import Plan
from allranks.data.strips import Strip

Submit = Callable[[list[Any], NDArray[np.int64], int], Future[list[Any]]]


@dataclass(frozen=True, slots=True)
class Taken:
    """A batch, and what the ledger notes when it is taken."""

    batch: Batch
    sum: Sum


def transformed(strips: Iterable[Strip], submit: Submit, *, epoch: int, workers: int) -> Iterator[Strip]:
    """Yield the strips after a chain, in order; ``workers`` processes have parts of two strips (0: none is ahead)."""
    waiting: deque[tuple[Strip, list[Future[list[Any]]]]] = deque()
    for strip in strips:
        ids = strip.ids
        part = -(-len(ids) // max(workers, 1))
        parts = [submit(strip.samples[at : at + part], ids[at : at + part], epoch) for at in range(0, len(ids), part)]
        waiting.append((strip, parts))
        if len(waiting) > (1 if workers else 0):
            yield _done(*waiting.popleft())
    while waiting:
        yield _done(*waiting.popleft())


def _done(strip: Strip, parts: Sequence[Future[list[Any]]]) -> Strip:
    return replace(strip, samples=[sample for part in parts for sample in part.result()])


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The columns of several steps, row after row, and what the ledger notes of each step."""

    steps: range
    columns: dict[str, Column]
    mask: NDArray[np.bool_]
    ids: NDArray[np.int64]
    sums: list[Sum]

    def __len__(self) -> int:
        """The number of steps."""
        return len(self.steps)


def collated(strips: Iterable[Strip], collator: Collator) -> Iterator[Columns]:
    """Yield the columns of every strip."""
    for strip in strips:
        places, ids = strip.places.reshape(-1), strip.ids[strip.places]
        found, good = collator.columns(strip.samples, strip.ids.tolist())
        columns, mask = {name: _in_order(column, places) for name, column in found.items()}, good[places]
        bad = _count_bad(strip) if not mask.all() else [0] * len(ids)
        yield Columns(strip.steps, columns, mask, ids, [Sum(*one) for one in zip(*sums(ids), bad, strict=True)])


def batches(made: Iterable[Columns], plan: Plan, rows: Sequence[int]) -> Iterator[Taken]:
    """Yield the batch of every step."""
    many, size = len(rows), plan.layout.global_batch
    for strip in made:
        for at, step in enumerate(strip.steps):
            here = slice(at * many, (at + 1) * many)
            cut = {name: column[here] for name, column in strip.columns.items()}
            batch = Batch(cut, strip.mask[here], strip.ids[at], rows, plan.epoch, step, size)
            yield Taken(batch, strip.sums[at])


def _in_order(column: Column, places: NDArray[np.int64]) -> Column:
    if isinstance(column, np.ndarray):
        return column[places]
    return list(map(column.__getitem__, places.tolist()))


def _count_bad(strip: Strip) -> list[int]:
    """Return of every step how many samples could not be used; padding and what a filter left out are none."""
    bad = [isinstance(one, Bad) and not one.filtered and one is not PADDING for one in strip.samples]
    counts: list[int] = np.array(bad)[strip.places].sum(axis=1).tolist()
    return counts
