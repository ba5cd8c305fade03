"""Find arrays in a checkpoint that are one rank's: its part of a larger array, or statistics of its own data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from allranks.errors import name_ranks
from allranks.findings import Finding
from allranks.rehearse.judge.base import Case, Kind, finding, who
from allranks.rehearse.trace import Event

PART = Kind(
    "AR403",
    "local-shard-as-full-array",
    "error",
    "The checkpoint has a slice of the array, of the right type and the wrong shape; the rest is lost.",
    "Save what all ranks put together: gather it first (process_allgather, full_tensor, get_model_state_dict with "
    "full_state_dict=True), or let every rank save its part (Orbax, torch.distributed.checkpoint).",
)
BUFFERS = Kind(
    "AR010",
    "rank-local-buffers",
    "error",
    "The file has the statistics of one rank's part of the data (running mean and variance) for those of all data.",
    "Average the buffers over the ranks before they are saved, use SyncBatchNorm, or let DDP broadcast them.",
)


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each line that saves one rank's arrays as those of all."""
    lines: dict[object, list[Event]] = defaultdict(list)
    for event in case.trace.of("saved"):
        lines[event.where].append(event)
    differing = _differing_buffers(case)
    for events in lines.values():
        if found := _parts(case, events):
            yield found
        elif (names := {one for event in events for one in event.data["buffers"]} & set(differing)) and (
            len({event.rank for event in events}) < case.trace.ranks
        ):
            name = min(names)
            text = (
                f"{len(names)} buffers ({name}, ...) that {who(events)} saves differ between the ranks; nothing has "
                "averaged them since the last batch"
            )
            evidence = [(f"rank {e.rank} uses its own {name} in its forward pass", e) for e in differing[name]]
            if one := finding(BUFFERS, text, events[0], evidence[:2]):
                yield one


def _parts(case: Case, events: Sequence[Event]) -> Finding | None:
    """Return a finding if the ranks that save at a line save parts of an array, but not all of it, or None."""
    saved: dict[tuple[str, tuple[int, ...]], dict[int, list[Any]]] = defaultdict(dict)
    for event in events:
        for part in event.data["parts"]:
            saved[part[0], tuple(part[2])][event.rank] = part
    for (name, shape), by_rank in saved.items():
        if sum(part[3] for part in by_rank.values()) >= next(iter(by_rank.values()))[4]:
            continue
        rank, part = next(iter(by_rank.items()))
        event = next(event for event in events if event.rank == rank)
        label = f"{name!r}, " if name else ""
        text = (
            f"only {tuple(part[1])} of an array of shape {shape} is saved, by {name_ranks(sorted(by_rank))} ({label}"
            f"{event.data['function']}): the rest of it is on other devices"
        )
        evidence = [(f"rank {rank}: {event.data['arrays']} arrays are saved here", event)]
        takes = [e for e in case.trace.of("part") if e.rank == rank and tuple(e.data["shape"]) == shape]
        return finding(PART, text, event, [*evidence, *((f"rank {rank} takes its part here", e) for e in takes[:2])])
    return None


def _differing_buffers(case: Case) -> Mapping[str, Sequence[Event]]:
    """Return the buffers that differ between the ranks whenever they are used, each with events of two ranks."""
    uses: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in case.trace.of("buffers"):
        uses[event.data["module"], event.data["number"]].append(event)
    found: dict[str, Sequence[Event]] = {}
    for (_, number), events in uses.items():
        if number and len(events) == case.trace.ranks:
            for name in events[0].data["digests"]:
                if len({event.data["digests"].get(name) for event in events}) > 1:
                    found.setdefault(name, events)
    return found
