"""Find which timeout governs a wait: when it ends by itself, and what sets that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from allranks.hang.heartbeat import Heartbeat

_XLA_CPU = "xla_cpu_collective_timeout_seconds"
_XLA_GPU = "xla_gpu_nccl_termination_timeout_seconds"
# As jaxlib 0.10 has it, in seconds.
_XLA_CPU_DEFAULT = 1800.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: of the world's meetings, and of torch's collectives (None without torch); and the text of XLA_FLAGS."""

    meeting: float
    torch: float | None = None
    xla_flags: str = ""


def governing(beat: Heartbeat, limits: Limits) -> Iterator[str]:
    """Yield, for the wait that a rank is in, when it would end by itself."""
    if beat.phase == "meeting":
        said_by = "allranks.init(timeout=...)" if beat.limit in (0.0, limits.meeting) else "timeout=... of this call"
        yield f"the meeting gives up after {beat.limit or limits.meeting:g} s: {said_by}"
    elif beat.phase == "collective" and limits.torch is not None:
        said_by = "new_group" if beat.group else "init_process_group"
        yield f"torch gives up after {limits.torch:g} s: {said_by}(timeout=...)"
    elif beat.phase == "collective":
        cpu = _flag(_XLA_CPU, limits.xla_flags)
        yield f"on CPUs JAX gives up after {cpu or _XLA_CPU_DEFAULT:g} s: --{_XLA_CPU} in XLA_FLAGS"
        gpu = _flag(_XLA_GPU, limits.xla_flags)
        yield f"on GPUs JAX {f'gives up after {gpu:g} s' if gpu else 'waits for ever'}: --{_XLA_GPU} in XLA_FLAGS"


def _flag(name: str, flags: str) -> float | None:
    found = re.search(rf"--{name}=(\d+(?:\.\d+)?)", flags)
    return float(found[1]) if found else None
