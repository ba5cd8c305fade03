"""Check that the ranks train one model, from digests of weights and gradients at the steps of each optimizer.

Replicas begin with equal weights and get equal gradients, since these were reduced over the ranks. If gradients differ,
and weights that were equal differ after the step, nobody reduces the gradients. If weights differ and gradients are
equal, nobody has made the weights equal. Ranks that hold parts of one model (other shapes, DTensor) are not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from allranks.errors import name_ranks
from allranks.findings import Finding
from allranks.rehearse.checkpoint_names import has_checkpoint_ending
from allranks.rehearse.judge.base import Case, Kind, finding
from allranks.rehearse.trace import Event

NOT_AVERAGED = Kind(
    "AR705",
    "gradients-not-averaged",
    "error",
    "Each rank trains a model of its own; the one that is saved has seen one rank's part of the data.",
    "Wrap the model (DistributedDataParallel, fully_shard), or all_reduce the gradients before the optimizer's step.",
)
NOT_ALIKE = Kind(
    "AR702",
    "rank-divergent-init",
    "error",
    "Each rank trains another model with the mean of gradients that do not belong to it.",
    "Seed all ranks alike before the model is made, or broadcast the weights of rank 0 (DistributedDataParallel does).",
)
LOADED_BY_ONE = Kind(
    "AR501",
    "load-on-one-rank",
    "error",
    "One rank goes on from the checkpoint, the others from their first weights: their mean is neither.",
    "Let every rank load, or load on one rank and broadcast, before the model is wrapped.",
)
NO_GRADIENT = Kind(
    "AR003",
    "optimizer-without-gradients",
    "error",
    "The optimizer changes nothing: the model that is saved is the one at the start.",
    "Make the optimizer of the parameters that are trained: after the model is wrapped, moved or sharded.",
)
DIVERGED = Kind(
    "AR004",
    "replicas-diverge",
    "error",
    "The ranks' models move apart step by step, though they share their gradients.",
    "Let all ranks make the same update: one learning rate, one clipping, no change of weights on one rank.",
)
_FEWEST = 3
# How the layout of a parameter begins that is sharded over data-parallel ranks.
FULLY_SHARDED = "fsdp "


class Row(NamedTuple):
    """One parameter on one rank at one step. A digest is "" if there is no gradient, or if the gradient is zero."""

    name: str
    group: int
    what: str
    layout: str
    value: str
    gradient: str
    trained: bool


@dataclass(frozen=True, slots=True)
class Table:
    """The parameters of one optimizer on all ranks, at one step: ``rows[rank][parameter]``."""

    number: int
    events: tuple[Event, ...]
    rows: tuple[tuple[Row, ...], ...]

    def differing(self, field: str, among: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return the indices of the parameters for which the digest ``field`` is not equal on all ranks.

        ``among`` limits the check to these indices.
        """
        places = range(len(self.rows[0])) if among is None else among
        return tuple(i for i in places if len({getattr(row[i], field) for row in self.rows}) > 1)


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for what is wrong with each optimizer's parameters."""
    for tables in _tables(case).values():
        if found := _of(case, tables):
            yield found


def tables_of(case: Case) -> dict[int, list[Table]]:
    """Return, for each optimizer, a table for each recorded step, in the order of steps."""
    return _tables(case)


def shares_gradients(case: Case) -> bool:
    """Return whether the ranks train replicas of one model: their weights are equal after the first step."""
    return any(table.number and not table.differing("value") for those in _tables(case).values() for table in those)


def _tables(case: Case) -> dict[int, list[Table]]:
    events: dict[tuple[int, int], dict[int, Event]] = {}
    for event in case.trace.of("weights"):
        events.setdefault((event.data["optimizer"], event.data["number"]), {})[event.rank] = event
    found: dict[int, list[Table]] = {}
    for (optimizer, number), by_rank in sorted(events.items()):
        if len(by_rank) != case.trace.ranks or case.trace.ranks == 1:
            continue
        rows = tuple(tuple(Row(*row) for row in by_rank[rank].data["rows"]) for rank in range(case.trace.ranks))
        if len({tuple((row.what, row.layout) for row in one) for one in rows}) == 1 and rows[0]:
            ordered = tuple(by_rank[rank] for rank in range(case.trace.ranks))
            found.setdefault(optimizer, []).append(Table(number, ordered, rows))
    return found


def _of(case: Case, tables: list[Table]) -> Finding | None:
    first = tables[0]
    if any(row.layout for row in first.rows[0]):
        return None
    if len(tables) >= _FEWEST and all(not row.gradient for table in tables for one in table.rows for row in one):
        text = f"no parameter of this optimizer has a gradient in {len(tables)} steps that were looked at"
        return finding(NO_GRADIENT, text, first.events[0], [(f"step {t.number + 1}", t.events[0]) for t in tables[:2]])
    unequal = first.differing("value")
    gradients = tuple(i for i in first.differing("gradient") if all(row[i].gradient for row in first.rows))
    if unequal:
        return _begun_apart(case, first, unequal, gradients)
    later = [table for table in tables[1:] if table.number <= first.number + 3]
    for i in gradients:
        if later and all(i in table.differing("value") for table in later):
            places = [j for j in gradients if all(j in table.differing("value") for table in later)]
            return _never_reduced(first, later[0], places)
    if one := _reduced_no_more(tables):
        return one
    if any(case.trace.of("join")):
        return None  # a rank that has ended its loop gets the weights of the others when all have ended theirs
    for before, table in pairwise(tables):
        apart = [i for i in table.differing("value") if i not in before.differing("gradient")]
        if apart and not before.differing("value"):
            rates = [event.data["rates"] for event in table.events]
            text = (
                f"{_some(table, apart)}: equal on all ranks up to step {before.number + 1} of the optimizer with equal "
                f"gradients, not after it"
                + (f"; learning rates {_by_rank(rates)}" if len(set(map(str, rates))) > 1 else "")
            )
            return finding(DIVERGED, text, before.events[0], _evidence(table, apart[0]))
    return None


def _begun_apart(case: Case, table: Table, unequal: tuple[int, ...], gradients: tuple[int, ...]) -> Finding | None:
    reads = [e for e in case.trace.of("file") if e.data["operation"] == "read" and e.time < table.events[0].time]
    loaded = {event.rank for event in case.trace.of("load") if event.time < table.events[0].time}
    readers = {e.rank for e in reads if e.where and has_checkpoint_ending(e.data["paths"][0])}
    some = loaded or readers
    if some and len(some) < case.trace.ranks:
        event = next(e for e in (*case.trace.of("load"), *reads) if e.rank in some)
        text = (
            f"{name_ranks(sorted(some))} of {case.trace.ranks} load weights here, and the others go on with others: "
            f"{_some(table, unequal)} differ"
        )
        return finding(LOADED_BY_ONE, text, event, _evidence(table, unequal[0]))
    if gradients:
        if _has_same_inputs(case):
            return None  # parts of one model (tensor parallelism by hand)
        text = (
            f"at the first step {_some(table, unequal)} differ between ranks, and so do the gradients: "
            "each rank trains a model of its own"
        )
        return finding(NOT_AVERAGED, text, table.events[0], _evidence(table, unequal[0]))
    text = f"at the first step {_some(table, unequal)} differ between ranks, though the gradients are equal"
    return finding(NOT_ALIKE, text, table.events[0], _evidence(table, unequal[0]))


def _has_same_inputs(case: Case) -> bool:
    """Return whether all ranks give the same samples to their models, or to the first part of them in each step."""
    firsts = [{event.step: event for event in reversed(events)} for events in case.trace.by_rank("input").values()]
    steps = list(zip(*(one.values() for one in firsts), strict=False))
    return bool(steps) and all(len({tuple(event.data["samples"]) for event in events}) == 1 for events in steps)


def _reduced_no_more(tables: list[Table]) -> Finding | None:
    """Return a finding for the first step with gradients that differ, after which the weights never agree again."""
    for number, (before, after) in enumerate(pairwise(tables)):
        rest = tables[number + 1 :]
        places = [
            i
            for i in before.differing("gradient")
            if all(row[i].gradient for row in before.rows)
            and not before.differing("value", (i,))
            and all(table.differing("value", (i,)) for table in rest)
        ]
        if places and after.number == before.number + 1 and len(rest) > 1:
            return _never_reduced(before, after, places)
    return None


def _never_reduced(first: Table, later: Table, places: list[int]) -> Finding | None:
    is_all = len(places) == len(first.rows[0])
    what = "the gradients" if is_all else f"the gradients of {_some(first, places)}"
    text = (
        f"{what} differ between ranks at the optimizer's step {first.number + 1}, and so do the weights after it: "
        "nothing has averaged them"
    )
    at = places[0]
    evidence = [
        (f"rank {rank}: gradient {row[at].gradient}, weights after it {later.rows[rank][at].value}", first.events[rank])
        for rank, row in enumerate(first.rows[:2])
    ]
    return finding(NOT_AVERAGED, text, first.events[0], evidence)


def _some(table: Table, places: list[int] | tuple[int, ...]) -> str:
    row = table.rows[0][places[0]]
    name = row.name or f"parameter {places[0]}"
    total = len(table.rows[0])
    return f"{len(places)} of {total} parameters ({name}, {row.what}{', ...' if len(places) > 1 else ''})"


def _evidence(table: Table, place: int) -> list[tuple[str, Event]]:
    values = Counter(row[place].value for row in table.rows)
    return [
        (f"rank {rank}: weights {row[place].value}, gradient {row[place].gradient or 'none'}", table.events[rank])
        for rank, row in enumerate(table.rows[: max(2, len(values))])
    ]


def _by_rank(rates: list[object]) -> str:
    return ", ".join(f"rank {rank}: {rate}" for rank, rate in enumerate(rates))
