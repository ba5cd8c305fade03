"""Build a loader from the description of a data set, and check that all ranks read the same data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from allranks.data import order
from allranks.data.audit import LocalAudit, SharedAudit
from allranks.data.base import HoldsSamples, Source
from allranks.data.detect import rows_of_process
from allranks.data.index import DatasetIndex
from allranks.data.loader import Loader, OpenedData
from allranks.data.mix import MixPlan
from allranks.data.pack import RowCarry
from allranks.data.packed import StepGroup, TokenWork, packed_step_groups
from allranks.data.packed_loader import PackedAudit, PackedLoader, PackedLocalAudit, PackedSharedAudit
from allranks.data.plan import EpochPlan, SamplePlan, choose_layout, rows_of_rank
from allranks.data.random_plan import RandomPlan
from allranks.data.recipe import BatchOptions, DatasetPart, DatasetRecipe, RandomOptions
from allranks.data.snapshot import ResumePosition
from allranks.data.start import sample_facts, shared_index, start_on_all_ranks
from allranks.data.transform import MixedChain, TransformChain
from allranks.data.workers import start_workers
from allranks.errors import DataError
from allranks.world.base import World

_READERS = 4  # threads that read blocks


def open_loader(
    data: DatasetRecipe, world: World, *, rows: object, prefetch: int, state: Mapping[str, Any] | None
) -> Loader | PackedLoader:
    """Open a data set on this rank of a world, and return its loader: see ``Dataset.loader``. Every rank must call."""
    indexes = slice_indexes(data, [shared_index(part.source, world) for part in data.parts])
    plan = planner_of_indexes(data, indexes)
    first = plan(0)
    batch = first.layout.global_batch
    packing = _facts(data)
    facts = {**first.facts(), **packing}
    held = rows_of_process(rows, global_batch=batch, world=world)
    resume = ResumePosition.from_optional_state(state, facts, first.layout, rank=world.rank)
    compared = sample_facts((part.source for part in data.parts), world)
    shares = start_on_all_ranks(world, {**facts, **resume.as_facts, **compared}, held, global_batch=batch)
    opened_data = open_data(data, indexes, plan)
    if data.packing is None:
        return Loader(opened_data, held, audit=SharedAudit(world, shares), prefetch=prefetch, resume=resume)
    audit = PackedSharedAudit(world, shares, packing)
    return _open_packed_loader(data, opened_data, held, audit=audit, resume=resume)


def open_single_rank(
    data: DatasetRecipe, rank: int, size: int, *, prefetch: int, state: Mapping[str, Any] | None
) -> Loader | PackedLoader:
    """Open a data set for a single rank, without a world, and return its loader."""
    indexes = slice_indexes(data, [part.source.index() for part in data.parts])
    plan = planner_of_indexes(data, indexes)
    first = plan(0)
    rows = rows_of_rank(rank, size, first.layout.global_batch)
    facts = {**first.facts(), **_facts(data)}
    resume = ResumePosition.from_optional_state(state, facts, first.layout, rank=rank)
    opened_data = open_data(data, indexes, plan)
    if data.packing is None:
        return Loader(opened_data, rows, audit=LocalAudit(rows, rank), prefetch=prefetch, resume=resume)
    return _open_packed_loader(data, opened_data, rows, audit=PackedLocalAudit(rank), resume=resume)


def epoch_planner(data: DatasetRecipe) -> Callable[[int], SamplePlan]:
    """Return a function that plans an epoch, for inspection. The files are indexed, but not opened."""
    return planner_of_indexes(data, slice_indexes(data, [part.source.index() for part in data.parts]))


def _facts(data: DatasetRecipe) -> dict[str, str | int]:
    """Return the settings that decide the packed rows, by name; empty without packing."""
    how = data.packing
    if how is None:
        return {}
    words = (how.method, how.length, how.pad_id, how.eos_id, how.long, how.open_rows)
    return {"packing": "/".join(map(str, words))}


def _open_packed_loader(
    data: DatasetRecipe, opened_data: OpenedData, rows: Sequence[int], *, audit: PackedAudit, resume: ResumePosition
) -> PackedLoader:
    assert data.packing is not None
    work = TokenWork(data.packing, data.column, opened_data.submit, data.workers)

    def made(plan: SamplePlan, begin: int, carries: Mapping[int, RowCarry]) -> Iterator[StepGroup]:
        return packed_step_groups(
            plan, rows, begin, open_stream=opened_data.stream_opener(plan), token_work=work, row_carries=carries
        )

    return PackedLoader(made, opened_data, rows, audit=audit, resume=resume)


def slice_indexes(data: DatasetRecipe, indexes: Sequence[DatasetIndex]) -> tuple[DatasetIndex, ...]:
    """Return the index of each part, reduced to the samples that belong to the data set.

    Raises DataError if no sample is left of a part.
    """
    found = []
    for part, index in zip(data.parts, indexes, strict=True):
        found.append(index.slice(part.start, index.samples if part.stop is None else part.stop))
        if not found[-1].samples:
            left = f" left of {index.samples} by skip and take" if index.samples else ""
            raise DataError(
                f"{part.source.where}: the data has no sample{left}: expected at least one.", path=part.source.where
            )
    return tuple(found)


def planner_of_indexes(data: DatasetRecipe, indexes: Sequence[DatasetIndex]) -> Callable[[int], SamplePlan]:
    """Return a function that returns the plan of an epoch. Raises DataError if the data set has no batches."""
    how = data.batching
    if how is None:
        raise DataError("loader: the data set has no batch size.", remedy="Call .batch(global_batch) before .loader.")
    if data.drawing is not None:
        return _random_planner(data, indexes[0], how, data.drawing)
    laid = choose_layout(
        min(indexes, key=len),
        global_batch=how.global_batch,
        seed=data.seed,
        shuffle=data.shuffled,
        streams=how.streams,
        window=how.window,
        tail=how.tail,
    )
    if len(indexes) == 1:
        return lambda epoch: EpochPlan(indexes[0], laid, epoch)
    weights = [part.weight for part in data.parts]
    return lambda epoch: MixPlan(indexes, weights, laid, epoch, stop=data.stop)


def _random_planner(
    data: DatasetRecipe, index: DatasetIndex, batching: BatchOptions, drawing: RandomOptions
) -> Callable[[int], SamplePlan]:
    if batching.streams is not None or batching.window is not None:
        raise DataError("batch: streams and window belong to an order, and random has none.", remedy="Leave them out.")
    many = drawing.samples or max(1, index.samples // drawing.overlap)
    return lambda epoch: RandomPlan(
        index, global_batch=batching.global_batch, seed=data.seed, samples=many, epoch=epoch
    )


def open_data(data: DatasetRecipe, indexes: Sequence[DatasetIndex], plan: Callable[[int], SamplePlan]) -> OpenedData:
    """Open the readers and the transforms for a plan's samples, and return them. Starts threads and workers."""
    pool = ThreadPoolExecutor(_READERS, thread_name_prefix="allranks-read")
    readers = tuple(_source_of(data, part).open(index) for part, index in zip(data.parts, indexes, strict=True))
    chain = _transforms_of_samples(data, indexes)
    workers = start_workers(chain, data.workers)

    def close() -> None:
        pool.shutdown(cancel_futures=True)
        workers.close()

    nbytes, samples = sum(index.nbytes for index in indexes), sum(index.samples for index in indexes)
    sample_bytes = nbytes / samples * (data.drawing.overlap if data.drawing else 1)
    return OpenedData(plan, readers, pool, workers.submit, data.workers, sample_bytes, workers.rest, close)


def _transforms_of_samples(data: DatasetRecipe, indexes: Sequence[DatasetIndex]) -> TransformChain | MixedChain:
    """Return the transforms of the samples; if the parts have their own, these come first."""
    common = TransformChain(data.operations, data.seed)
    if not any(part.operations for part in data.parts):
        return common
    bases = [0]
    for index in indexes:
        bases.append(bases[-1] + index.samples)
    chains = [
        TransformChain(part.operations, order.make_key("part", number, data.seed))
        for number, part in enumerate(data.parts)
    ]
    return MixedChain(tuple(chains), tuple(bases), common)


def _source_of(data: DatasetRecipe, part: DatasetPart) -> Source:
    """Return the source of a part, whose samples its functions may change."""
    is_changed = bool(data.operations or part.operations)
    return part.source.with_copies() if is_changed and isinstance(part.source, HoldsSamples) else part.source
