"""Check before step 0 that all ranks read the same data, and decide which rank counts each row of a batch. No I/O.

Sets of rows are sent as ranges, [begin, end] each. A Mismatch that is raised here is raised by every rank.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from allranks.errors import Mismatch
from allranks.world.claims import by_claim, describe_groups, minority_ranks

Ranges = Sequence[Sequence[int]]
_MOST = 8
DIVIDED = (
    "Is it divided already (samples[rank::size], split_dataset_by_node), or shuffled by a seed of each rank's own? "
    "Give every rank the same, all of it. Where samples differ by rank on purpose, say compare=False."
)
_SAME_DATA = "Did every rank build the same data set, with the same settings?"
_REMEDY = {
    "index": "Do all hosts see the same files?",
    "global batch": "Every rank must ask for the same global batch.",
    "epoch": "Did every rank restore the same checkpoint?",
    "depth": "Did every rank restore the same checkpoint?",
    "some samples": DIVIDED,
    "allranks": "Install one version on all hosts.",
}


@dataclass(frozen=True, slots=True)
class RowShares:
    """The rows of the global batch that one rank holds.

    - ``rows``: all of these rows.
    - ``counted``: the rows whose samples this rank counts in the ledger. Each row is counted once, by the lowest rank
      that holds it.
    - ``shared``: the rows that other ranks hold, too.
    - ``anywhere``: whether any two ranks of the world hold the same row.
    """

    rows: tuple[int, ...]
    counted: tuple[int, ...]
    shared: tuple[int, ...]
    anywhere: bool


def rows_to_ranges(rows: Iterable[int]) -> list[list[int]]:
    """Convert ascending row numbers into ranges [begin, end], in which ``end`` is the row after the last."""
    found: list[list[int]] = []
    for row in rows:
        if found and found[-1][1] == row:
            found[-1][1] = row + 1
        else:
            found.append([row, row + 1])
    return found


def describe_rows(rows: Ranges) -> str:
    """Format ranges of rows as text for people, e.g. ``row 3`` or ``rows 0-7, 12``."""
    listed = [str(begin) if end == begin + 1 else f"{begin}-{end - 1}" for begin, end in rows[:_MOST]]
    more = ", ..." if len(rows) > _MOST else ""
    single = len(rows) == 1 and rows[0][1] == rows[0][0] + 1
    return f"row{'' if single else 's'} {', '.join(listed) or 'none'}{more}"


def require_equal_facts(facts_by_rank: Sequence[Mapping[str, Any]]) -> None:
    """Raise Mismatch, with each rank's facts in the message, unless the facts of all ranks are equal.

    ``facts_by_rank`` describe each rank's data, in rank order.
    """
    known = dict.fromkeys(name for one in facts_by_rank for name in one)
    names = [name for name in known if any(one.get(name) != facts_by_rank[0].get(name) for one in facts_by_rank)]
    if names:
        remedy = " ".join(dict.fromkeys(_REMEDY.get(name, _SAME_DATA) for name in names))
        raise _different_facts("the ranks do not read the same data", facts_by_rank, names, remedy)


def require_equal_columns(dtypes_by_rank: Sequence[Mapping[str, str]]) -> None:
    """Raise Mismatch unless the columns of all ranks have equal dtypes, which are given in rank order, by column."""
    known = dict.fromkeys(name for one in dtypes_by_rank for name in one)
    if names := [name for name in known if len({one.get(name) for one in dtypes_by_rank}) > 1]:
        remedy = "A column has one kind of value, on every rank: convert it in a .map."
        raise _different_facts("the first batches differ", dtypes_by_rank, names, remedy)


def _different_facts(
    what: str, facts_by_rank: Sequence[Mapping[str, Any]], names: Sequence[str], remedy: str
) -> Mismatch:
    groups = by_claim(
        (rank, ", ".join(f"{name} {one.get(name)}" for name in names)) for rank, one in enumerate(facts_by_rank)
    )
    more = f"; and {len(groups) - _MOST} more groups" if len(groups) > _MOST else ""
    return Mismatch(
        f"{what}: {describe_groups(islice(groups.items(), _MOST))}{more}.",
        ranks=minority_ranks(groups.values()),
        remedy=remedy,
    )


def rows_error(rows_by_rank: Sequence[Ranges], global_batch: int) -> str:
    """Return a text that says which rows no rank holds; "" if the ranks together hold each row of the batch."""
    for rank, held in enumerate(rows_by_rank):
        if held and not 0 <= held[0][0] <= held[-1][1] <= global_batch:
            return f"rank {rank} holds {describe_rows(held)}, which are not all in a global batch of {global_batch}"
    there = np.zeros(global_batch, bool)
    for begin, end in (one for held in rows_by_rank for one in held):
        there[begin:end] = True
    missing = rows_to_ranges(np.flatnonzero(~there).tolist())
    if not missing:
        return ""
    groups = describe_groups(
        (describe_rows(held), ranks) for held, ranks in _groups_with_equal_rows(rows_by_rank)[:_MOST]
    )
    return f"no rank holds {describe_rows(missing)} of the global batch of {global_batch}; {groups}"


def count_error(rows_by_rank: Sequence[Ranges], global_batch: int) -> str:
    """Return a text that names the rows that no rank counts, or several do; "" if exactly one rank counts each row."""
    count = np.zeros(global_batch, np.int64)
    for begin, end in (one for held in rows_by_rank for one in held):
        count[begin:end] += 1
    none, several = (rows_to_ranges(np.flatnonzero(odd).tolist()) for odd in (count == 0, count > 1))
    wrong = {"no rank": none, "several": several}
    return " and ".join(f"{describe_rows(rows)} by {who}" for who, rows in wrong.items() if rows)


def _groups_with_equal_rows(rows_by_rank: Sequence[Ranges]) -> list[tuple[Ranges, list[int]]]:
    return list(by_claim((rank, tuple(map(tuple, held))) for rank, held in enumerate(rows_by_rank)).items())


def encode_row_counters(rows_by_rank: Sequence[Ranges], global_batch: int) -> bytes | None:
    """Encode which rank counts each row, and which rows several ranks hold; None if no two ranks hold the same row.

    The ranks of a mesh are regular, so the compressed bytes are few: some hundred for 10,000 ranks.
    """
    owner, holders = np.zeros(global_batch, np.int64), np.zeros(global_batch, np.int64)
    for rank in reversed(range(len(rows_by_rank))):
        for begin, end in rows_by_rank[rank]:
            owner[begin:end] = rank
            holders[begin:end] += 1
    if holders.max() < 2:
        return None
    codes = owner * 2 + (holders > 1)
    return zlib.compress(np.diff(codes, prepend=0).astype("<i4").tobytes())


def decode_row_shares(rows: Sequence[int], encoded_counters: bytes | None, rank: int) -> RowShares:
    """Decode the result of ``encode_row_counters`` for one rank. ``rows``: the rows that the rank holds."""
    if encoded_counters is None:
        return RowShares(tuple(rows), tuple(rows), (), False)
    held = np.array(rows, np.int64)
    codes = np.cumsum(np.frombuffer(zlib.decompress(encoded_counters), "<i4"))[held]
    counted, shared = held[codes // 2 == rank], held[codes % 2 == 1]
    return RowShares(tuple(rows), tuple(counted.tolist()), tuple(shared.tolist()), True)


def find_differing_rows(
    reports_by_rank: Sequence[tuple[Ranges, bytes]],
) -> tuple[list[list[int]], list[int], list[int]] | None:
    """Return the rows whose hashes differ between ranks, the ranks that hold the first one, and their minority.

    None if there are no such rows. ``reports_by_rank`` are pairs, in rank order: rows as ranges, and their hashes of 8
    bytes each.
    """
    held: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for rank, (where, data) in enumerate(reports_by_rank):
        rows = [row for begin, end in where for row in range(begin, end)]
        for row, value in zip(rows, np.frombuffer(data, "<u8").tolist(), strict=True):
            held[row][rank] = value
    odd = sorted(row for row, by_rank in held.items() if len(set(by_rank.values())) > 1)
    if not odd:
        return None
    first = held[odd[0]]
    return rows_to_ranges(odd), list(first), list(minority_ranks(by_claim(first.items()).values()))
