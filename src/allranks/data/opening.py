"""From what a data set says to what a loader needs: indexes, plans, readers, and a chain of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from allranks.data.chains import MixedChain
from allranks.data.dataset import Dataset
from allranks.data.index import Index
from allranks.data.mix import MixPlan
from allranks.data.plan import EpochPlan, Plan, layout
from allranks.data.transform import Chain
from allranks.errors import DataError

_READERS = 4  # threads that read blocks


def index_of(data: Dataset, read: Callable[[Dataset, int], Index]) -> tuple[Index, ...]:
    """Return the parts' indexes, of those samples that belong to the data set; ``read`` returns that of a source."""
    found = []
    for number, part in enumerate(data.parts):
        whole = read(data, number)
        found.append(whole.slice(part.start, whole.samples if part.stop is None else part.stop))
        if not found[-1].samples:
            raise DataError(
                f"{part.source.where} has no sample{' of those that take and skip leave' if whole.samples else ''}.",
                path=part.source.where,
            )
    return tuple(found)


def planner(data: Dataset, indexes: Sequence[Index]) -> Callable[[int], Plan]:
    """Return what plans an epoch."""
    batching = data.batching
    if batching is None:
        raise DataError("the data set makes no batches yet.", remedy="Say .batch(global_batch=...) before .loader.")
    smallest = min(indexes, key=len)
    how = layout(
        smallest,
        global_batch=batching.global_batch,
        seed=data.seed,
        shuffle=data.shuffled,
        lanes=batching.lanes,
        window=batching.window,
        tail=batching.tail,
    )
    if len(indexes) == 1:
        return lambda epoch: EpochPlan(indexes[0], how, epoch)
    weights = [part.weight for part in data.parts]
    return lambda epoch: MixPlan(indexes, weights, how, epoch, stop=data.stop)


def chain_of(data: Dataset, indexes: Sequence[Index]) -> Chain | MixedChain:
    """Return what is done to the samples."""
    common = Chain(data.operations, data.seed)
    if not any(part.operations for part in data.parts):
        return common
    bases = [0]
    for index in indexes:
        bases.append(bases[-1] + index.samples)
    return MixedChain(tuple(Chain(part.operations, data.seed) for part in data.parts), tuple(bases), common)
