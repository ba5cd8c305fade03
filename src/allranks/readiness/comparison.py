"""Compare values that must be equal, or must differ, over ranks, and return report rows. No I/O.

A `NamedValue` is any JSON value with a name. The ranks first exchange the digests of all values. Then, only for values
that differ, one rank of each group of equal ranks sends the value itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from allranks.digest import digest, show
from allranks.errors import name_ranks
from allranks.findings import Row, Verdict, error, notes, ok
from allranks.world.claims import by_claim, describe_groups

Groups = list[list[int]]
_MOST_GROUPS, _MOST_PLACES, _MOST_SHOWN = 8, 4, 60


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A value that must be equal on all ranks.

    - ``found``: a description of the value; ``remedy``: what to do if ranks differ.
    - ``if_not``: the verdict if ranks differ.
    - ``partial``: only those parts count that all ranks have, because one rank may have imported more.
    """

    check: str
    value: Any
    found: str
    remedy: str
    if_not: Verdict = "error"
    partial: bool = False

    @property
    def digest(self) -> str:
        return digest_of_value(self.value)


def digest_of_value(value: Any) -> str:
    """Return a digest of a JSON value; equal values have equal digests."""
    return show(digest(json.dumps(value, sort_keys=True)))


def find_differences(digests_by_rank: Sequence[Mapping[str, str]]) -> dict[str, Groups]:
    """Return the checks whose digests differ over ranks, each with the groups of equal ranks.

    ``digests_by_rank`` are the ranks' digests by check, in rank order.
    """
    checks = dict.fromkeys(check for digests in digests_by_rank for check in digests)
    groups = {
        check: by_claim((rank, digests.get(check, "")) for rank, digests in enumerate(digests_by_rank))
        for check in checks
    }
    return {check: list(by.values()) for check, by in groups.items() if len(by) > 1}


def first_rank_of_groups(groups: Groups) -> list[int]:
    """Return the first rank of each group, which sends the value of its group."""
    return [ranks[0] for ranks in groups[:_MOST_GROUPS]]


def difference_row(named_value: NamedValue, groups: Groups, values: Mapping[int, Any]) -> Row:
    """Return the report row about a value that differs; ``values`` maps the groups' leaders to their values."""
    flat = {rank: dict(_flatten_value(values.get(rank))) for rank in first_rank_of_groups(groups)}
    places = sorted({place for places in flat.values() for place in places})
    absent = object()
    if named_value.partial:
        places = [place for place in places if all(place in there for there in flat.values())]
    odd = [place for place in places if len({repr(there.get(place, absent)) for there in flat.values()}) > 1]
    if not odd:
        return ok(named_value.check, named_value.found)
    text = [_describe_part(place, groups, flat) for place in odd[:_MOST_PLACES]]
    more = f"; and {len(odd) - _MOST_PLACES} more" if len(odd) > _MOST_PLACES else ""
    return Row(named_value.check, named_value.if_not, notes("; ".join(text) + more), named_value.remedy)


def _describe_part(place: str, groups: Groups, flat: Mapping[int, Mapping[str, Any]]) -> str:
    """Return a description of one part of a value in all groups, e.g. ``lr: ranks 0, 2: 0.1; rank 1: 0.2``."""
    by_value: dict[str, list[int]] = {}
    for ranks in groups[:_MOST_GROUPS]:
        there = flat[ranks[0]]
        value = _shorten_text(json.dumps(there[place])) if place in there else "(none)"
        by_value.setdefault(value, []).extend(ranks)
    return (f"{place}: " if place else "") + describe_groups(by_value.items())


def _flatten_value(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return the elements of a JSON value, each with its path, e.g. ``optimizer.lr``."""
    if isinstance(value, dict) and value:
        dot = f"{path}." if path else ""
        return [part for name in value for part in _flatten_value(value[name], f"{dot}{name}")]
    if isinstance(value, list) and value:
        return [part for at, one in enumerate(value) for part in _flatten_value(one, f"{path}[{at}]")]
    return [(path, value)]


def _shorten_text(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def distinct_row(topic: str, digests_by_rank: Sequence[Sequence[str]]) -> Row:
    """Return the report row about values that must differ between all ranks and devices.

    ``digests_by_rank`` are the digests of each rank's values, in rank order.
    """
    first: dict[str, tuple[int, int]] = {}
    clashes: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for rank, digests in enumerate(digests_by_rank):
        for at, part in enumerate(digests):
            there = first.setdefault(part, (rank, at))
            if there != (rank, at):
                clashes.append((there, (rank, at)))
    total = sum(map(len, digests_by_rank))
    if not clashes:
        return ok(
            topic, f"{total} on {len(digests_by_rank)} rank{'s' if len(digests_by_rank) > 1 else ''}, all different"
        )
    (one, i), (other, j) = clashes[0]
    same = (
        f"rank {one} holds the same value at places {i} and {j}"
        if one == other
        else f"ranks {one} and {other} hold the same value"
    )
    ranks = {rank for pair in clashes for rank, _ in pair}
    found = f"{same}; {len(clashes)} of {total} are repeated, on {name_ranks(ranks)}"
    return error(
        topic,
        found,
        remedy="Fold in the rank (and the device's number): jax.random.fold_in(key, world.rank),"
        " torch.Generator().manual_seed(seed + world.rank).",
    )


def merge_rows(rows_by_rank: Iterable[tuple[int, Row]], ok_counts: Mapping[str, int]) -> list[Row]:
    """Merge the report rows of all ranks.

    Equal rows become one, with the ranks that reported it (none if all ranks did).

    ``ok_counts`` counts, by topic, the ranks that found it ok and sent no row. Topics are in the order of their first
    row.
    """
    topics: dict[str, dict[Row, list[int]]] = {}
    for rank, row in rows_by_rank:
        topics.setdefault(row.topic, {}).setdefault(row, []).append(rank)
    found: list[Row] = []
    for topic, groups in topics.items():
        wrong = {row: tuple(ranks) for row, ranks in groups.items() if row.verdict != "ok"}
        if not wrong:
            found.append(next(iter(groups)))
        unanimous = len(groups) == 1 and not ok_counts.get(topic)
        found += [replace(row, ranks=() if unanimous else ranks) for row, ranks in wrong.items()]
    return found
