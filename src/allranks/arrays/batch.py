"""Check that rows, ranks, devices and accumulation steps multiply to the global batch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from allranks.errors import BatchMismatch, name_ranks


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How a global batch of ``size`` rows is divided over ranks, devices of each rank, and accumulation steps.

    ``str()`` is the equation: ``64 = 4 ranks x 2 devices x 4 x 2 accumulation``, where the second 4 is the rows of a
    device at once. Raises BatchMismatch, which names the nearest valid sizes, if ``size`` is no multiple of the
    factors.
    """

    size: int
    ranks: int
    devices: int = 1
    accumulation: int = 1

    def __post_init__(self) -> None:
        parts = {"ranks": self.ranks, "devices": self.devices, "accumulation": self.accumulation}
        for name, value in parts.items():
            if value < 1:
                raise BatchMismatch(f"{name}={value}: expected at least 1.")
        unit = math.prod(parts.values())
        if self.size < 1 or self.size % unit:
            below = max(self.size // unit, 0) * unit
            nearest = [str(n) for n in (below, below + unit) if n > 0]
            raise BatchMismatch(
                f"a batch of {self.size} rows cannot be divided evenly: {_counted(self.ranks, 'rank')} x "
                f"{_counted(self.devices, 'device')} x {self.accumulation} accumulation = {unit}, and every device "
                "needs the same number of rows.",
                remedy=f"The nearest batch size{'s are' if len(nearest) > 1 else ' is'} {' and '.join(nearest)}.",
            )

    def __str__(self) -> str:
        return (
            f"{self.size} = {_counted(self.ranks, 'rank')} x {_counted(self.devices, 'device')} x {self.rows_at_once}"
            f" x {self.accumulation} accumulation"
        )

    @property
    def rows_at_once(self) -> int:
        """The number of rows that one device processes in one micro-batch."""
        return self.size // (self.ranks * self.devices * self.accumulation)

    @property
    def rows_per_rank(self) -> int:
        """The number of rows of a global batch that one rank provides."""
        return self.size // self.ranks

    def rows_of(self, rank: int) -> range:
        """Return the row numbers of the global batch that ``rank`` provides."""
        return range(rank * self.rows_per_rank, (rank + 1) * self.rows_per_rank)


@dataclass(frozen=True, slots=True)
class RowClaim:
    """What one rank reports about its rows of a global batch.

    ``leaves``: a description of each leaf (path, dtype, shape).
    ``shards``: the numbers of the parts of the global batch that this rank's rows fill.
    ``digest``: the digest of the rows' bytes; "" if all rows are equal and therefore cannot be distinguished.
    """

    leaves: tuple[str, ...]
    shards: tuple[int, ...]
    digest: str


def count_rows(shapes: Mapping[str, tuple[int, ...]], *, operation: str) -> int:
    """Return the number of rows, the first dimension of the leaves. Raises BatchMismatch if the leaves differ in it."""
    groups: defaultdict[int | None, list[str]] = defaultdict(list)
    for path, shape in shapes.items():
        groups[shape[0] if shape else None].append(path)
    if None in groups:
        raise BatchMismatch(
            f"{operation}: leaf '{groups[None][0]}' has no dimension: expected rows in the first dimension.",
            leaf=groups[None][0],
        )
    if len(groups) != 1:
        told = ", ".join(f"{rows} in '{paths[0]}'" for rows, paths in groups.items()) or "no leaf at all"
        raise BatchMismatch(
            f"{operation}: the leaves have different numbers of rows: {told}.",
            remedy="The first dimension of every leaf must be the rows of this rank.",
        )
    return next(rows for rows in groups if rows is not None)


def count_global_rows(rows: int, *, rank_parts: int, all_parts: int, global_rows: int | None, operation: str) -> int:
    """Return the rows of the global batch, of which this rank has ``rows`` in ``rank_parts`` of ``all_parts`` parts.

    Raises BatchMismatch if the rows cannot be divided over the parts, or do not add up to a given ``global_rows``.
    """
    if rows == 0 or rows % rank_parts:
        raise BatchMismatch(
            f"{operation}: {rows} rows cannot be divided over the {rank_parts} parts of the batch on this rank's "
            f"devices: expected a multiple of {rank_parts}.",
            remedy="Every device needs the same number of rows.",
        )
    total = rows * all_parts // rank_parts
    if global_rows is not None and total != global_rows:
        raise BatchMismatch(
            f"{operation}: {rows} rows on this rank make a batch of {total} rows over all ranks: expected "
            f"global_rows={global_rows}.",
            remedy=_advice_on_rows(rows, mine=rank_parts, shards=all_parts, global_rows=global_rows),
        )
    return total


def _advice_on_rows(rows: int, *, mine: int, shards: int, global_rows: int) -> str:
    if global_rows % shards:
        return f"{global_rows} rows cannot be divided over the {shards} parts of the batch either."
    expected = global_rows * mine // shards
    if rows == global_rows:
        return f"These are the rows of all ranks: pass only this rank's own {expected} rows."
    return f"This rank should pass {expected} rows."


def raise_changed_size(batch_rows: int, earlier: Sequence[int], *, operation: str) -> None:
    """Raise BatchMismatch: the size of the batch changed without ``global_rows``, perhaps on this rank only."""
    raise BatchMismatch(
        f"{operation}: the rows make a batch of {batch_rows}: expected {' or '.join(map(str, earlier))}, as before.",
        remedy=f"Drop the last, smaller batch, or pass global_rows={batch_rows} on every rank.",
    )


def check_row_claims(claims: Sequence[RowClaim]) -> None:
    """Raise BatchMismatch unless the rows of the ranks fit together; ``claims`` are in rank order.

    All ranks must report the same leaves. Ranks with the same part of the batch must have the same bytes. Ranks with
    different parts must have different bytes: equal bytes mean that every rank reads the same data.
    """
    alike = _ranks_by(claim.leaves for claim in claims)
    if len(alike) > 1:
        told = "; ".join(f"{name_ranks(ranks)}: {', '.join(leaves)}" for leaves, ranks in alike.items())
        fewest: list[int] = min(alike.values(), key=len)
        raise BatchMismatch(
            f"the ranks have different rows: {told}.",
            ranks=fewest,
            remedy="Every rank must pass the same number of rows, with the same shapes and dtypes.",
        )
    if ranks := _find_clash(claims, key=lambda claim: claim.shards, value=lambda claim: claim.digest):
        raise BatchMismatch(
            f"{name_ranks(ranks)} hold the same part of the batch, but have different bytes for it.",
            ranks=ranks,
            remedy="Ranks that differ only along a mesh axis that is not the batch's must read the same rows.",
        )
    if ranks := _find_clash(claims, key=lambda claim: claim.digest, value=lambda claim: claim.shards):
        raise BatchMismatch(
            f"{name_ranks(ranks)} have byte-identical rows for different parts of the batch.",
            ranks=ranks,
            remedy="Every rank must read its own rows: BatchPlan.rows_of(rank) says which.",
        )


def _find_clash(
    claims: Sequence[RowClaim], *, key: Callable[[RowClaim], Hashable], value: Callable[[RowClaim], Hashable]
) -> tuple[int, int] | None:
    """Return the first two ranks whose claims have equal keys and different values."""
    first: dict[Hashable, tuple[int, RowClaim]] = {}
    for rank, claim in enumerate(claims):
        other, its = first.setdefault(key(claim), (rank, claim))
        if claim.digest and its.digest and value(its) != value(claim):
            return other, rank
    return None


def _ranks_by(keys: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], list[int]]:
    groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, key in enumerate(keys):
        groups[key].append(rank)
    return dict(groups)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
