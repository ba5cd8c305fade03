"""Read torch's records of its collectives: how many have begun and ended, and after how long they time out."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d
from torch.distributed import distributed_c10d

from allranks.errors import rank_list
from allranks.hang.calls import CollectivesInFlight, RecentCalls

_read: Any = getattr(_distributed_c10d, "_dump_fr_trace_json", None)
_DEFAULT = "0"
# Calls of the past that are told: those of some steps.
_MOST_CALLS = 96


def collectives_in_flight() -> CollectivesInFlight | None:
    """Return the numbers of collectives that have begun and ended; None if torch does not record them.

    The collectives of DDP's reducer and of compiled code are included. The recorder is a private API, so this module
    checks that it exists.
    """
    if _read is None or not dist.is_initialized():
        return None
    groups = json.loads(_read(False, False)).get("pg_status", {})
    begun, ended = _begun_and_ended(groups.pop(_DEFAULT, None))
    pending = [name for name, status in groups.items() if (numbers := _begun_and_ended(status))[0] > numbers[1]]
    return CollectivesInFlight(begun, ended, tuple(pending))


def _begun_and_ended(status: Any) -> tuple[int, int]:
    """Return how many collectives of a group have begun and have ended. Torch's own record has -1 for none."""
    if status is None:
        return 0, 0
    return int(status["last_enqueued_collective"]), max(0, int(status["last_completed_collective"]))


def recorded_collectives() -> RecentCalls:
    """Return the last collectives of the default group; none if torch does not record them."""
    if _read is None or not dist.is_initialized():
        return RecentCalls()
    entries = [one for one in json.loads(_read(True, False)).get("entries", ()) if _is_of_all(one)][-_MOST_CALLS:]
    number = int(entries[-1]["collective_seq_id"]) if entries else 0
    return RecentCalls(number, tuple(f"{one['profiling_name']} {one['input_sizes']}" for one in entries))


def _is_of_all(entry: Any) -> bool:
    return entry["process_group"][0] == _DEFAULT and not entry["is_p2p"]


def describe_group(name: str) -> str:
    """Return the description that the program has given a group, or else its ranks, e.g. ``group 2 (ranks 0-1)``."""
    world: Any = distributed_c10d._world
    for group, known in world.pg_names.items():
        if known == name:
            described = group.group_desc not in ("", "undefined")
            ranks = rank_list(sorted(world.pg_group_ranks.get(group, ())))
            return f"group {group.group_desc!r}" if described else f"group {name} (ranks {ranks})"
    return f"group {name}"


def global_rank(group: Any, rank: int) -> int:
    """Return the rank in the world of the member with this rank in a group."""
    return rank if group is None else dist.get_global_rank(group, rank)


def gives_up_after(name: str = _DEFAULT) -> float | None:
    """Return the timeout, in seconds, of the collectives of a group; None if torch.distributed is not initialised."""
    if not dist.is_initialized():
        return None
    names: Any = distributed_c10d._world.pg_names
    group: Any = next((one for one, known in names.items() if known == name), distributed_c10d._get_default_group())
    timeout: timedelta = group._get_backend(group._device_types[0]).options._timeout
    return timeout.total_seconds()
