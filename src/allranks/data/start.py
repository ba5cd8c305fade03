"""Send the index to all ranks, and check before step 0 that all ranks are about to read the same data."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data import agreement
from allranks.data.agreement import RowShares
from allranks.data.base import Progress, Source, ignore_progress
from allranks.data.index import DatasetIndex
from allranks.digest import digest
from allranks.errors import BatchMismatch, DataChanged, DataError, name_ranks
from allranks.world.base import World

_PART = 1 << 20  # bytes that a coordinator takes in one piece


def sample_facts(sources: Iterable[Source], world: World) -> dict[str, str]:
    """Return a digest of a few samples of those sources that are objects in memory, for the ranks to compare.

    Empty if there is nothing to compare.
    """
    compared = [source.sample_digest() for source in sources if world.size > 1 and hasattr(source, "sample_digest")]
    return {"some samples": "/".join(compared)} if any(compared) else {}


def shared_index(source: Source, world: World, *, progress: Progress = ignore_progress) -> DatasetIndex:
    """Return a source's index, which rank 0 builds or loads from its cache. **Every rank must call.**

    Raises DataError on every rank if rank 0 has an error with the files.
    """
    if world.size == 1:
        return source.index(progress=progress)
    packed = b""
    failure: DataError | None = None

    def build() -> dict[str, Any]:
        nonlocal packed, failure
        try:
            packed = zlib.compress(source.index(progress=progress).encode(), 1)
        except DataError as error:
            failure = error
            return {"error": str(error), "path": error.path, "kind": type(error).__name__}
        return {"size": len(packed)}

    outcome = world.on_main(build)
    if failure is not None:
        raise failure
    if "error" in outcome:
        kind = DataChanged if outcome["kind"] == DataChanged.__name__ else DataError
        raise kind(f"rank {world.rank}: rank 0 cannot index the data: {outcome['error']}", path=outcome["path"])
    size = outcome["size"]
    parts = [world.broadcast(packed[at : at + _PART], name=f"index at {at}") for at in range(0, size, _PART)]
    return DatasetIndex.decode(zlib.decompress(b"".join(parts)))


@cache
def allranks_version() -> str:
    """Return the version of allranks."""
    return version("allranks")


def start_on_all_ranks(
    world: World, facts: Mapping[str, str | int], rows: Sequence[int], *, global_batch: int
) -> RowShares:
    """Check that all ranks begin, or resume, with equal facts; return this rank's shares. **Every rank must call.**

    ``facts`` are the values that must be equal on all ranks, by name (index, plan, epoch, depth, ...). The global batch
    and the version of allranks are added. ``rows`` are the rows of the global batch that this rank holds, ascending.
    One exchange. Raises on every rank: Mismatch, which names ranks and facts; BatchMismatch if no rank holds a row, or
    if a row does not exist.
    """
    compared = {**facts, "global batch": global_batch, "allranks": allranks_version()}
    verdict = world.exchange("data", "start", [compared, agreement.rows_to_ranges(rows)], decide=_decide_start)
    if "wrong" in verdict:
        raise BatchMismatch(
            f"rank {world.rank}: start of the data: {verdict['wrong']}.",
            remedy="Let every rank take the rows that its devices hold: give the loader the sharding of the batch.",
        )
    return agreement.decode_row_shares(rows, verdict["counters"], world.rank)


def _decide_start(values: Sequence[Any]) -> dict[str, Any]:
    agreement.require_equal_facts([facts for facts, _ in values])
    global_batch, rows_by_rank = values[0][0]["global batch"], [ranges for _, ranges in values]
    wrong = agreement.rows_error(rows_by_rank, global_batch)
    return {"wrong": wrong} if wrong else {"counters": agreement.encode_row_counters(rows_by_rank, global_batch)}


def compare_columns(world: World, columns: Mapping[str, Any]) -> None:
    """Check that the columns of the first batch have one dtype on all ranks. **Every rank must call.**

    ``columns`` are arrays or lists. One exchange. Raises Mismatch on every rank, which names columns and ranks.
    """
    found = {f"column {name!r}": str(getattr(column, "dtype", "a list")) for name, column in columns.items()}
    world.exchange("data", "columns", found, decide=agreement.require_equal_columns)


def row_hashes(columns: Mapping[str, NDArray[Any]]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of every row of a batch, over the bytes of all columns."""
    names = sorted(columns)
    heads = [f"{name} {columns[name].dtype}{columns[name].shape[1:]}" for name in names]
    rows = zip(*(columns[name] for name in names), strict=True)
    found = [digest(*heads, *map(_value_bytes, values)) & (1 << 64) - 1 for values in rows]
    return np.array(found, np.uint64)


def _value_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        return value.tobytes()
    return value if isinstance(value, bytes) else repr(value).encode(errors="surrogatepass")


def compare_shared_rows(world: World, rows: Sequence[int], hashes: NDArray[np.uint64]) -> None:
    """Check that ranks that hold the same rows have the same bytes for these rows. **Every rank must call.**

    ``rows`` are the rows of this rank that other ranks hold, too (perhaps none). ``hashes`` are those of these rows in
    its first batch. One exchange. Raises BatchMismatch on every rank, which names rows and ranks.
    """
    report = [agreement.rows_to_ranges(rows), hashes.astype("<u8").tobytes()]
    odd = world.exchange("data", "shared rows", report, decide=agreement.find_differing_rows)
    if odd is not None:
        where, holders, ranks = odd
        unlike = f"; {name_ranks(ranks)} unlike most" if len(ranks) < len(holders) else ""
        raise BatchMismatch(
            f"rank {world.rank}: the first batch: {name_ranks(holders)} brought different bytes for "
            f"{agreement.describe_rows(where)}, which they hold together{unlike}.",
            ranks=ranks,
            remedy="Are the samples mapped with something that is not the same on every rank: a clock, an unseeded "
            "random generator, a file of the host?",
        )
