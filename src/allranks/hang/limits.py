"""Find out after how long a wait ends by itself, and which setting says so."""

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
    """Timeouts in seconds: ``exchange`` of the world's exchanges, ``torch`` of torch's collectives (or None).

    ``xla_flags`` is the text of the variable XLA_FLAGS.
    """

    exchange: float
    torch: float | None = None
    xla_flags: str = ""


def describe_timeouts(heartbeat: Heartbeat, limits: Limits) -> Iterator[str]:
    """Yield lines that say after how long the wait of a rank ends by itself, and which setting says so."""
    if heartbeat.phase == "exchange":
        said_by = (
            "allranks.init(timeout=...)" if heartbeat.limit in (0.0, limits.exchange) else "timeout=... of this call"
        )
        yield f"the exchange times out after {heartbeat.limit or limits.exchange:g} s: {said_by}"
    elif heartbeat.phase == "collective" and limits.torch is not None:
        said_by = "new_group" if heartbeat.group else "init_process_group"
        yield f"torch gives up after {limits.torch:g} s: {said_by}(timeout=...)"
    elif heartbeat.phase == "collective":
        cpu = _flag_value(_XLA_CPU, limits.xla_flags)
        yield f"on CPUs JAX gives up after {cpu or _XLA_CPU_DEFAULT:g} s: --{_XLA_CPU} in XLA_FLAGS"
        gpu = _flag_value(_XLA_GPU, limits.xla_flags)
        yield f"on GPUs JAX {f'gives up after {gpu:g} s' if gpu else 'waits for ever'}: --{_XLA_GPU} in XLA_FLAGS"


def _flag_value(name: str, flags: str) -> float | None:
    found = re.search(rf"--{name}=(\d+(?:\.\d+)?)", flags)
    return float(found[1]) if found else None
