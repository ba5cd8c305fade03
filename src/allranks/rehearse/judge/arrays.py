"""Find global arrays of JAX whose parts do not belong together, and host arrays wrongly used as global values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from allranks.findings import Finding
from allranks.rehearse.judge.base import Case, Kind, finding
from allranks.rehearse.judge.data import other_orders
from allranks.rehearse.trace import Event

SAME = Kind(
    "AR301",
    "dataset-not-sharded",
    "error",
    "The global batch holds the same rows once for each process: N times the machines, the speed of one.",
    "Give each process its part of the data (by jax.process_index()), and make the global array of the parts.",
)
LOCAL = Kind(
    "AR312",
    "local-rows-as-global",
    "error",
    "JAX takes a host array for the complete global value, the same on all: each process computes with its own rows.",
    "Make the global array of the local rows: jax.make_array_from_process_local_data(sharding, rows).",
)
REPLICA = Kind(
    "AR702",
    "rank-divergent-init",
    "error",
    "Each process computes with other values of what all hold to be one array: models that drift apart in silence.",
    "Make it of the same values on all processes: one seed, or multihost_utils.broadcast_one_to_all.",
)
_FEWEST = 2


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each line that makes or passes a wrong array."""
    if case.trace.ranks == 1:
        return
    yield from _made(case)
    yield from _given(case)


def _made(case: Case) -> Iterator[Finding]:
    lines: dict[object, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in case.trace.of("global"):
        lines[event.where][event.rank].append(event)
    for by_rank in lines.values():
        if len(by_rank) < case.trace.ranks:
            continue
        pairs = list(combinations(sorted(by_rank), 2))
        found = _same(by_rank) or _replicas(by_rank) or _sources(by_rank)
        if found is None and _is_data(by_rank):
            found = other_orders(by_rank, pairs)
        if found is not None:
            yield found


def _same(by_rank: Mapping[int, Sequence[Event]]) -> Finding | None:
    """Return a finding if two processes repeatedly put the same rows into different parts of global arrays, or None."""
    for a, b in combinations(sorted(by_rank), 2):
        pairs = [
            (one, other)
            for one, other in zip(by_rank[a], by_rank[b], strict=False)
            if one.data["shape"] == other.data["shape"] and not set(one.data["parts"]) & set(other.data["parts"])
        ]
        varied = len({tuple(one.data["samples"]) for one, _ in pairs}) > 1
        if (
            len(pairs) >= _FEWEST
            and varied
            and all(one.data["samples"] == other.data["samples"] for one, other in pairs)
        ):
            text = f"ranks {a} and {b} make their parts of {len(pairs)} global arrays of the same rows"
            evidence = [
                (f"rank {e.rank}: part {e.data['parts'][0]}: rows {_few(e.data['samples'])}", e) for e in pairs[0]
            ]
            return finding(SAME, text, pairs[0][0], evidence)
    return None


def _is_data(by_rank: Mapping[int, Sequence[Event]]) -> bool:
    """Return whether each process makes another part of the arrays, and several arrays of one shape."""
    firsts = [events[0] for events in by_rank.values()]
    parts = [set(event.data["parts"]) for event in firsts]
    return len(by_rank[0]) >= _FEWEST and not set.intersection(*parts)


def _few(digests: Sequence[str]) -> str:
    return ", ".join(digests[:3]) + (", ..." if len(digests) > 3 else "")


def _replicas(by_rank: Mapping[int, Sequence[Event]]) -> Finding | None:
    """Return a finding if the processes give different values for a replicated array, or None."""
    for those in zip(*(by_rank[rank] for rank in sorted(by_rank)), strict=False):
        if all(e.data["replicated"] for e in those) and len({tuple(e.data["samples"]) for e in those}) > 1:
            text = "the ranks make a replicated array of other values: " + ", ".join(
                f"rank {e.rank}: {e.data['samples'][0]}" for e in those
            )
            return finding(LOCAL, text, those[0], [(f"rank {e.rank}: {e.data['shape']}", e) for e in those[:2]])
    return None


def _sources(by_rank: Mapping[int, Sequence[Event]]) -> Finding | None:
    """Return a finding if the processes cut their parts out of different arrays of the global shape, or None."""
    for those in zip(*(by_rank[rank] for rank in sorted(by_rank)), strict=False):
        sources = {event.data.get("source", "") for event in those}
        if len(sources) > 1 and "" not in sources and len({tuple(e.data["shape"]) for e in those}) == 1:
            text = (
                f"each process cuts its part of a global array {those[0].data['shape']} out of an array of its own: "
                "the rest of its rows is in no global array"
            )
            return finding(LOCAL, text, those[0], [(f"rank {e.rank}: array {e.data['source']}", e) for e in those[:2]])
    return None


def _given(case: Case) -> Iterator[Finding]:
    runs: dict[tuple[object, str, int], dict[int, Event]] = defaultdict(dict)
    for event in case.trace.of("arguments"):
        runs[event.where, event.data["program"], event.data["number"]][event.rank] = event
    reported: set[object] = set()
    for (where, program, _), by_rank in runs.items():
        if where in reported or len(by_rank) < case.trace.ranks:
            continue
        events = [by_rank[rank] for rank in sorted(by_rank)]
        for number in events[0].data["given"]:
            values = [event.data["given"].get(number) for event in events]
            if all(values) and len({value[1] for value in values}) > 1:
                reported.add(where)
                is_replica = not values[0][2]
                what = "a replicated array" if is_replica else "a host array"
                text = (
                    f"argument {number} of {program}, {what} {values[0][0]}, is not the same on all ranks, and "
                    "the program takes it for one global value"
                )
                evidence = [(f"rank {e.rank}: {v[0]}, digest {v[1]}", e) for e, v in zip(events, values, strict=True)]
                one = finding(REPLICA if is_replica else LOCAL, text, events[0], evidence[:4])
                if one is not None:
                    yield one
                break
