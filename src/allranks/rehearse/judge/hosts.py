"""Find faults with ranks on several hosts: local ranks used as global ranks, local disks used as shared disks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from allranks.findings import Finding
from allranks.rehearse.judge.base import OF_HOST, Case, Kind, finding, who
from allranks.rehearse.trace import Event, Trace

GATE = Kind(
    "AR105",
    "node-local-gate-on-shared-path",
    "error",
    "The first rank of each host writes to one path on the shared disk: they overwrite each other's bytes.",
    "Ask for rank 0 of all (RANK), not of a host (LOCAL_RANK), or give each host a path of its own.",
)
AS_GLOBAL = Kind(
    "AR306",
    "local-rank-as-global-rank",
    "error",
    "Hosts read the same data: each sample counts once for each host.",
    "Part the data by RANK and WORLD_SIZE, not by LOCAL_RANK.",
)
LOCAL_DISK = Kind(
    "AR606",
    "single-node-assumption",
    "error",
    "The file is on the disk of one host; ranks on other hosts do not find it, or find their own.",
    "Use a path on a disk that all hosts share, or let one rank of each host make it.",
)
APART = Kind(
    "AR606",
    "single-node-assumption",
    "warning",
    "Each host trains a model of its own on all data, and writes checkpoints and logs of its own.",
    "Tell the program how many hosts there are, as Trainer(num_nodes=2), or run it on one host only.",
)
_BY_CODE = {"AR101": GATE, "AR102": GATE, "AR108": GATE, "AR109": GATE, "AR110": GATE, "AR301": AS_GLOBAL}


def recoded(found: Iterable[Finding], known: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings of a run on several hosts.

    A finding that a run on one host did not have becomes a fault of hosts.
    """
    lines = {(one.code, one.place.path, one.place.line) for one in known}
    for one in found:
        kind = _BY_CODE.get(one.code)
        if kind is None or (one.code, one.place.path, one.place.line) in lines:
            yield one
        else:
            yield replace(
                one, code=kind.code, name=kind.name, cluster=kind.cluster, advice=kind.advice, severity=kind.severity
            )


def apart(case: Case, baseline: Trace) -> Finding | None:
    """Return a finding if ranks that work together on one host (``baseline``) train apart on several, or None.

    All other findings of such a run follow from this one.
    """
    steps = {event.rank: event for event in case.trace.of("step")}
    if len(steps) < case.trace.ranks or any(case.trace.of("enter")) or not any(baseline.of("enter")):
        return None
    evidence = [(f"rank {rank} trains without the others", event) for rank, event in sorted(steps.items())]
    text = f"{who([*steps.values()])} train apart if each is on a host of its own, and together on one host"
    return finding(APART, text, steps[0], evidence)


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each line that looks for a file on its local disk, though another host wrote the file."""
    made: dict[str, list[tuple[str, Event]]] = {}
    for event in case.trace.of("file"):
        if event.data["operation"] not in ("read", "exists", "list", "remove", "rmdir"):
            for path in event.data["paths"]:
                if found := OF_HOST.fullmatch(path):
                    made.setdefault(found[2], []).append((found[1], event))
    reported: set[object] = set()
    for event in case.trace.of("file"):
        path = event.data["paths"][0]
        found = OF_HOST.fullmatch(path)
        if event.data["operation"] not in ("read", "exists") or found is None or event.data["existed"]:
            continue
        others = [maker for host, maker in made.get(found[2], ()) if host != found[1]]
        own = [maker for host, maker in made.get(found[2], ()) if host == found[1]]
        if others and not own and event.where not in reported:
            reported.add(event.where)
            text = (
                f"rank {event.rank} on host {found[1]} looks for {case.name(path)}, which rank {others[0].rank} has "
                "made on the disk of another host"
            )
            evidence = [
                (f"rank {others[0].rank} makes it here", others[0]),
                (f"rank {event.rank} does not find it", event),
            ]
            one = finding(LOCAL_DISK, text, event, evidence)
            if one is not None:
                yield one
