"""Turn samples into batches: transform the samples, in this process or in worker processes, and collate them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import find_bad_samples
from allranks.data.batch import Batch, BatchCollator
from allranks.data.ledger import SampleSum, sums_of_batches
from allranks.data.plan import SamplePlan
from allranks.data.sample_columns import AnyColumn, Column, LazyColumns, is_lazy
from allranks.data.step_chunks import PADDING, StepSamples

Submit = Callable[[Sequence[Any], NDArray[np.int64], int], Future[Sequence[Any]]]


@dataclass(frozen=True, slots=True)
class CountedBatch:
    """A batch, and the sum of its samples for the ledger."""

    batch: Batch
    sum: SampleSum


def transform_samples(
    samples: Iterable[StepSamples], submit: Submit, *, epoch: int, workers: int
) -> Iterator[StepSamples]:
    """Yield the samples after their transforms, in order.

    ``workers`` processes work on parts of two items of ``samples`` at once (0: this process works, and nothing is
    ahead).
    """
    waiting: deque[tuple[StepSamples, list[Future[Sequence[Any]]]]] = deque()
    for one in samples:
        waiting.append((one, submit_samples(submit, one.samples, one.ids.ravel(), epoch, workers=workers)))
        if len(waiting) > (1 if workers else 0):
            yield _finished_samples(*waiting.popleft())
    while waiting:
        yield _finished_samples(*waiting.popleft())


def submit_samples(
    submit: Submit, samples: Sequence[Any], ids: NDArray[np.int64], epoch: int, *, workers: int
) -> list[Future[Sequence[Any]]]:
    """Divide samples among the workers, and return the futures of their results, in order."""
    part = max(-(-len(samples) // max(workers, 1)), 1)
    return [submit(samples[at : at + part], ids[at : at + part], epoch) for at in range(0, len(samples), part)]


def _finished_samples(one: StepSamples, parts: Sequence[Future[Sequence[Any]]]) -> StepSamples:
    if len(parts) == 1:
        return replace(one, samples=parts[0].result())
    return replace(one, samples=[sample for part in parts for sample in part.result()])


@dataclass(frozen=True, slots=True, eq=False)
class StepColumns:
    """The collated columns of several steps, with the sum of each step's samples for the ledger."""

    steps: range
    columns: dict[str, AnyColumn]
    mask: NDArray[np.bool_]
    ids: NDArray[np.int64]
    sums: list[SampleSum]

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.steps)


def collate_samples(sample_groups: Iterable[StepSamples], collator: BatchCollator) -> Iterator[StepColumns]:
    """Yield the columns of each group of samples."""
    for one in sample_groups:
        columns, mask = collator.make_columns(one.samples, one.ids.ravel())
        yield StepColumns(
            one.steps,
            columns,
            mask,
            one.ids,
            [SampleSum(*each) for each in zip(*sums_of_batches(one.ids), _count_bad(one), strict=True)],
        )


def make_batches(step_columns: Iterable[StepColumns], plan: SamplePlan, rows: Sequence[int]) -> Iterator[CountedBatch]:
    """Yield a batch for every step."""
    many, size = len(rows), plan.layout.global_batch
    for chunk in step_columns:
        lazy = any(map(is_lazy, chunk.columns.values()))
        for at, step in enumerate(chunk.steps):
            here = slice(at * many, (at + 1) * many)
            cut = {name: column[here] for name, column in chunk.columns.items()}
            batch = Batch(
                LazyColumns(cut) if lazy else cast(dict[str, Column], cut),
                chunk.mask[here],
                chunk.ids[at],
                rows,
                plan.epoch,
                step,
                size,
            )
            yield CountedBatch(batch, chunk.sums[at])


def _count_bad(one: StepSamples) -> list[int]:
    """Return, for every step, how many samples could not be used; padding and filtered samples do not count."""
    counts, rows = [0] * len(one.steps), one.ids.shape[1]
    for at, sample in find_bad_samples(one.samples).items():
        counts[at // rows] += not sample.filtered and sample != PADDING
    return counts
