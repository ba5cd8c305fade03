"""What torch.distributed itself knows of its collectives: how many were begun and ended, and when it gives up."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d
from torch.distributed import distributed_c10d


def flight() -> tuple[int, int] | None:
    """Return how many collectives of the default group were begun and have ended; None where torch does not say.

    Those of DDP's reducer and of compiled code are among them. The recorder is private API, which is looked at first.
    """
    read: Any = getattr(_distributed_c10d, "_dump_fr_trace_json", None)
    if read is None or not dist.is_initialized():
        return None
    status = json.loads(read(False, False)).get("pg_status", {}).get("0")
    if status is None:
        return None
    return int(status["last_enqueued_collective"]), int(status["last_completed_collective"])


def gives_up_after() -> float | None:
    """Return when torch's collectives time out, in seconds."""
    if not dist.is_initialized():
        return None
    group: Any = distributed_c10d._get_default_group()
    timeout: timedelta = group._get_backend(group._device_types[0]).options._timeout
    return timeout.total_seconds()
