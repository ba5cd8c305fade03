"""Check before the first step that a batch or a loader fits the ranks, devices and accumulation steps. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from allranks.arrays.batch import BatchPlan, count_rows
from allranks.errors import BatchMismatch
from allranks.findings import Row, error, ok, warning

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """The settings of a torch DataLoader.

    - ``samples``: the length of the dataset; None for an iterable dataset.
    - ``replicas`` and ``replica``: those of a distributed sampler; None without one.
    - ``forks``: its workers are forked.
    """

    batch_size: int | None
    drop_last: bool
    samples: int | None
    replicas: int | None
    replica: int | None
    workers: int
    forks: bool


def plan_row(size: int, ranks: int, devices: int, accumulation: int) -> tuple[Row, BatchPlan | None]:
    """Return a report row that says whether a global batch of ``size`` rows divides evenly; and the plan, or None."""
    try:
        plan = BatchPlan(size, ranks, devices, accumulation)
    except BatchMismatch as raised:
        return _row_of_error("batch", raised), None
    return ok("batch", str(plan)), plan


def _row_of_error(topic: str, raised: BatchMismatch) -> Row:
    return error(topic, str(raised).removesuffix(raised.remedy).strip(), remedy=raised.remedy)


def first_rows_row(shapes: Mapping[str, Shape], plan: BatchPlan | None, devices: int, accumulation: int) -> Row:
    """Return a report row that says whether the leading dimensions of this rank's arrays fit the plan, or its devices.

    ``shapes`` are the shapes by path. Without a plan, they must fit the devices and the accumulation.
    """
    try:
        rows = count_rows(shapes, operation="the rows")
    except BatchMismatch as raised:
        return _row_of_error("leading dimension", raised)
    if plan is None:
        unit = devices * accumulation
        if rows % unit == 0 or _one_a_device(shapes, rows, devices):
            return ok("leading dimension", f"{rows} rows on {devices} devices, {accumulation} accumulation")
        found = f"{rows} rows do not divide by {devices} devices x {accumulation} accumulation"
        return error("leading dimension", found, remedy=f"Pass a multiple of {unit} rows.")
    micro = plan.rows_per_rank // plan.accumulation
    if rows in (plan.rows_per_rank, micro):
        kind = "rows of a batch" if rows == plan.rows_per_rank else "rows of a micro-batch"
        return ok("leading dimension", f"{rows} {kind} on this rank")
    if _one_a_device(shapes, rows, devices, plan):
        return ok("leading dimension", f"{devices} devices x {plan.rows_at_once} rows or more")
    found = f"this rank brings {rows} rows; its part is {plan.rows_per_rank} of {plan.size}"
    if plan.accumulation > 1:
        found += f", {micro} at once"
    return error("leading dimension", found, remedy=_advice_on_rows(rows, plan))


def global_rows_row(shapes: Mapping[str, Shape], plan: BatchPlan | None) -> Row:
    """Return a report row that says whether a batch of global arrays has as many rows as the plan."""
    rows = {shape[0] for shape in shapes.values() if shape}
    text = ", ".join(map(str, sorted(rows)))
    remedy = "Every rank brings its own rows: allranks.global_batch(mesh, rows, global_rows=...)."
    if plan is not None and plan.accumulation > 1 and rows == {plan.rows_per_rank} == {plan.size // plan.accumulation}:
        found = f"global arrays of {text} rows: those of a micro-batch, or of one rank, taken for all"
        remedy = f"If they are not of a micro-batch: {remedy[0].lower()}{remedy[1:]}"
        return warning("leading dimension", found, remedy=remedy)
    if plan is None or rows <= {plan.size, plan.size // plan.accumulation}:
        return ok("leading dimension", f"global arrays of {text} rows")
    return error("leading dimension", f"global arrays of {text} rows; the batch has {plan.size}", remedy=remedy)


def _one_a_device(shapes: Mapping[str, Shape], rows: int, devices: int, plan: BatchPlan | None = None) -> bool:
    """Return whether the arrays have the shape (devices, rows of a device, ...), as for pmap."""
    if rows != devices or any(len(shape) < 2 for shape in shapes.values()):
        return False
    wanted = plan and {plan.rows_at_once, plan.rows_at_once * plan.accumulation, plan.accumulation}
    return not wanted or all(shape[1] in wanted for shape in shapes.values())


def _advice_on_rows(rows: int, plan: BatchPlan) -> str:
    if rows == plan.size:
        return "These are the rows of all ranks: bring only those of this rank, BatchPlan.rows_of(rank)."
    return "Set the loader's batch size to the rows of one rank."


def loader_rows(
    settings: LoaderSettings, plan: BatchPlan | None, *, rank: int, ranks: int, uses_jax: bool
) -> Iterator[Row]:
    """Yield the report rows about this rank's DataLoader; ``uses_jax``: JAX runs in this process."""
    if plan is not None and settings.batch_size is not None:
        yield _batch_size(settings.batch_size, plan)
    yield _sampler_row(settings, rank, ranks)
    if settings.samples is not None and settings.batch_size:
        yield _last_batch(settings, settings.samples, settings.batch_size)
    if uses_jax and settings.workers and settings.forks:
        found = f"{settings.workers} workers are forked from a process in which JAX runs threads"
        yield warning("loader workers", found, remedy='DataLoader(multiprocessing_context="spawn"), or num_workers=0.')


def _batch_size(size: int, plan: BatchPlan) -> Row:
    micro = plan.rows_per_rank // plan.accumulation
    if size in (plan.rows_per_rank, micro):
        return ok("loader batch size", f"{size} rows")
    found = f"{size} rows; the part of one rank is {plan.rows_per_rank}, {micro} at once"
    return error("loader batch size", found, remedy=f"DataLoader(batch_size={micro}).")


def _sampler_row(settings: LoaderSettings, rank: int, ranks: int) -> Row:
    check = "each rank its own rows"
    if settings.replicas is not None:
        if (settings.replicas, settings.replica) == (ranks, rank):
            return ok(check, f"a sampler for {ranks} ranks")
        found = f"the sampler is for rank {settings.replica} of {settings.replicas}, this is rank {rank} of {ranks}"
        return error(check, found, remedy=f"DistributedSampler(dataset, num_replicas={ranks}, rank={rank}).")
    if ranks == 1:
        return ok(check, "one rank")
    if settings.samples is None:
        found = "an iterable dataset: which rows each rank reads is unknown"
        return warning(check, found, remedy="allranks.shard(dataset, world).")
    found = "no distributed sampler: every rank reads the whole dataset"
    return error(
        check, found, remedy="DataLoader(sampler=DistributedSampler(dataset)), or allranks.shard(dataset, world)."
    )


def _last_batch(settings: LoaderSettings, samples: int, size: int) -> Row:
    mine = -(-samples // (settings.replicas or 1))
    rest = mine % size
    if settings.drop_last or not rest:
        return ok("drop_last", f"every batch has {size} rows")
    found = f"drop_last is not set, and the last batch of an epoch has {rest} rows instead of {size}"
    return error(
        "drop_last",
        found,
        remedy="DataLoader(drop_last=True): a smaller batch is another program, or does not divide over the devices.",
    )
