"""Find ranks of one host that share a CUDA device under NCCL. This module does no I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from allranks.findings import Finding
from allranks.rehearse.judge.base import Case, Kind, finding
from allranks.rehearse.trace import Event

SHARED = Kind(
    "AR605",
    "device-not-bound",
    "error",
    "NCCL refuses two ranks on one device (Duplicate GPU detected), or both are out of memory and half as fast.",
    'Select the device by the local rank before CUDA is used: torch.cuda.set_device(int(os.environ["LOCAL_RANK"])).',
)


MISSING = Kind(
    "AR605",
    "device-not-bound",
    "error",
    "The ranks of every host but the first ask for devices that their host does not have.",
    'Select the device by the local rank: torch.cuda.set_device(int(os.environ["LOCAL_RANK"])).',
)


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each device of a host that is the only one of several ranks which have joined NCCL."""
    joined = {event.rank for event in case.trace.of("nccl")}
    used = {rank: events for rank, events in case.trace.by_rank("device").items() if rank in joined and events}
    sharing: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for events in used.values():
        devices = {(event.data["host"], event.data["device"]) for event in events}
        if len(devices) == 1:
            sharing[devices.pop()].append(events[0])
    for events in sharing.values():
        if len(events) > 1:
            ranks = " and ".join(str(event.rank) for event in events)
            text = f"ranks {ranks} of one host use the same device, cuda:{events[0].data['index']}, and no other"
            evidence = [(f"rank {event.rank} uses cuda:{event.data['index']}", event) for event in events]
            one = finding(SHARED, text, events[-1], evidence)
            if one is not None:
                yield one
