"""Find folders that each rank makes for itself although all ranks should share one.

Their names contain a time, a random number or a process id.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from allranks.findings import Finding
from allranks.rehearse.checkpoint_names import has_checkpoint_ending
from allranks.rehearse.judge.base import Case, Kind, finding
from allranks.rehearse.trace import Event

DIVERGENT = Kind(
    "AR107",
    "rank-divergent-run-dir",
    "error",
    "Each rank writes into a folder of its own: checkpoints are in parts that nobody puts together.",
    "Let rank 0 choose the name and broadcast it to all.",
)
FILES = Kind(
    DIVERGENT.code,
    DIVERGENT.name,
    "warning",
    "Each rank saves a file of its own, under a name by its clock or a random number: nobody knows which one to load.",
    DIVERGENT.advice,
)
_MAKES, _REMOVES = ("create", "exclusive", "write"), ("rename", "remove")


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each line at which all ranks make a folder, each with a different name."""
    if case.trace.ranks == 1:
        return
    lines: dict[object, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in case.trace.of("mkdir"):
        if event.where is not None and event.data.get("direct", True):
            lines[event.where][event.rank].append(event)
    for by_rank in lines.values():
        if len(by_rank) < case.trace.ranks:
            continue
        for events in zip(*(by_rank[rank] for rank in sorted(by_rank)), strict=False):
            names = {event.rank: event.data["path"] for event in events}
            if len(set(names.values())) > 1 and not _is_by_rank(names):
                shown = ", ".join(f"rank {rank}: {case.name(path)}" for rank, path in sorted(names.items())[:3])
                text = f"ranks make folders of other names at one line: {shown}"
                evidence = [(f"rank {e.rank} makes {case.name(e.data['path'])}; {case.seen}", e) for e in events[:3]]
                if one := finding(DIVERGENT, text, events[0], evidence):
                    yield one
                break
    yield from _files(case)


def _files(case: Case) -> Iterator[Finding]:
    """Yield a finding for each line at which each rank makes a checkpoint with a different name, which stays."""
    removed = {(e.rank, e.data["paths"][0]) for e in case.trace.of("file") if e.data["operation"] in _REMOVES}
    lines: dict[object, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    users: dict[tuple[object, str], set[int]] = defaultdict(set)
    for event in case.trace.of("file"):
        path = event.data["paths"][-1]
        if event.where is None or event.data["operation"] not in _MAKES or (event.rank, path) in removed:
            continue
        users[event.where, path].add(event.rank)
        if has_checkpoint_ending(path) and not event.data["existed"]:
            lines[event.where][event.rank].append(event)
    for by_rank in lines.values():
        if len(by_rank) < case.trace.ranks:
            continue
        events = [by_rank[rank][0] for rank in sorted(by_rank)]
        names = {event.rank: event.data["paths"][-1] for event in events}
        folders = {name.rpartition("/")[0] for name in names.values()}
        is_shared = any(len(users[event.where, event.data["paths"][-1]]) > 1 for event in events)
        if len(folders) > 1 or is_shared or _is_one_checkpoint(by_rank):
            continue
        shown = ", ".join(f"rank {rank}: {case.name(path)}" for rank, path in sorted(names.items())[:3])
        text = f"ranks save files of other names at one line: {shown}"
        evidence = [(f"rank {e.rank} makes {case.name(names[e.rank])}; {case.seen}", e) for e in events[:3]]
        if one := finding(FILES, text, events[0], evidence):
            yield one


def _is_one_checkpoint(by_rank: Mapping[int, list[Event]]) -> bool:
    """Return whether the first file of each rank has the name of a file of the lowest rank, but for the rank's number.

    The lowest rank may make more files at the line: one call of a library saves the weights and the state of each rank.
    """
    lowest, *others = sorted(by_rank)
    known = [event.data["paths"][-1] for event in by_rank[lowest]]
    firsts = {rank: by_rank[rank][0].data["paths"][-1] for rank in others}
    return all(any(_is_by_rank({lowest: name, rank: first}) for name in known) for rank, first in firsts.items())


def _is_by_rank(names: Mapping[int, str]) -> bool:
    """Return whether the names differ only by the rank's number: then each rank is meant to have its own folder."""
    split = [re.split(r"(\d+)", name) for name in names.values()]
    if len({len(parts) for parts in split}) > 1:
        return False
    return all(
        len(set(column)) == 1
        or all(part.isdigit() and int(part) == rank for rank, part in zip(names, column, strict=True))
        for column in zip(*split, strict=True)
    )
