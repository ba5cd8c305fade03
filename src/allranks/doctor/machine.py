"""Make the report rows about a machine's cores, memory and limits from measured values. This module does no I/O."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from allranks.doctor.hosts import format_bytes
from allranks.findings import Row, error, not_determined, not_seen, ok, warning

GB = 1_000_000_000
# Docker gives 64 MB; a DataLoader's worker keeps each batch that it has made there.
_LITTLE_SHARED = GB
_SHARED = "/dev/shm"  # noqa: S108 - it is looked at
_FEW_FILES, _ENOUGH_FILES, _FEW_PROCESSES = 4096, 65536, 1000


@dataclass(frozen=True, slots=True)
class MachineCores:
    """The cores of a machine.

    - ``counted``: cores in the machine.
    - ``allowed``: cores that all ranks of this host may use together.
    - ``of_a_rank``: the fewest cores that one of the ranks may use.
    - ``quota``: the cgroup's quota, in cores; None for none.
    - ``threads``: OMP_NUM_THREADS; 0 if it is not set.
    """

    counted: int
    allowed: int
    of_a_rank: int
    quota: float | None = None
    threads: int = 0


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """The memory of a machine, in bytes; ``limit`` and ``used`` are the cgroup's, None without a limit."""

    total: int
    available: int
    limit: int | None = None
    used: int | None = None

    @property
    def usable(self) -> int:
        if self.limit is None or self.used is None:
            return self.available
        return min(self.available, self.limit - self.used)


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Shared memory, in bytes; ``trouble`` is the error of an attempt to write a file there."""

    total: int = 0
    free: int = 0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """The resource limits of a process, and what is in use. ``inf`` means no limit; ``files`` is (soft, hard).

    ``processes`` is the lowest limit (RLIMIT_NPROC, the cgroup's, the kernel's), with its name. ``running`` is what
    counts against that limit.
    """

    files: tuple[float, float]
    open: int
    processes: tuple[float, str]
    running: int
    core: float
    locked: float


def cores_row(machine_cores: MachineCores, ranks: int) -> Row:
    """Return a report row that says whether the ranks may use as many cores as libraries assume when they start
    threads.
    """
    usable = min(machine_cores.allowed, machine_cores.quota or math.inf)
    told = [f"{machine_cores.counted} in the machine, {machine_cores.allowed} allowed"]
    if machine_cores.quota is not None:
        told[0] += f", the cgroup's quota is {machine_cores.quota:g}"
    if machine_cores.threads:
        told[0] += f"; OMP_NUM_THREADS={machine_cores.threads}"
    share = max(1, int(usable // ranks))
    if ranks > usable:
        told.append(f"{ranks} ranks take turns on {usable:g}")
        return warning(
            "cores", *told, remedy="Use fewer ranks, or more cores: steps will be slow, and timeouts may expire."
        )
    if machine_cores.of_a_rank == 1 and machine_cores.counted > ranks:
        told.append("a rank is bound to 1 core, and the workers that load its data with it")
        return warning(
            "cores", *told, remedy="Use srun --cpus-per-task=K (Slurm binds a task to that many), or taskset."
        )
    if machine_cores.threads * ranks > usable:
        told.append(f"{ranks} ranks x {machine_cores.threads} threads are more than {usable:g} cores")
        return warning("cores", *told, remedy=f"Set OMP_NUM_THREADS={share}.")
    if machine_cores.quota is not None and machine_cores.quota < machine_cores.allowed and not machine_cores.threads:
        told.append(
            f"libraries start a thread for each of {machine_cores.allowed}, and are then throttled to "
            f"{machine_cores.quota:g}"
        )
        return warning(
            "cores", *told, remedy=f"Set OMP_NUM_THREADS={share}, and as many DataLoader workers, not os.cpu_count()."
        )
    return ok("cores", *told, margin=usable / ranks)


def memory_row(machine_memory: MachineMemory, ranks: int) -> Row:
    told = f"{format_bytes(machine_memory.total)}, {format_bytes(machine_memory.usable)} available"
    if machine_memory.limit is not None and machine_memory.limit < machine_memory.total:
        told = (
            f"{format_bytes(machine_memory.total)}, but the cgroup ends a process at "
            f"{format_bytes(machine_memory.limit)}; "
            f"{format_bytes(machine_memory.usable)} available"
        )
    if machine_memory.usable < GB * ranks:
        a_rank = (
            f"{format_bytes(machine_memory.usable / ranks)} for each of {ranks} ranks"
            if ranks > 1
            else "less than a framework takes"
        )
        return warning(
            "memory", told, a_rank, remedy="End other processes here, or request more (srun --mem, a larger pod)."
        )
    return ok("memory", told, margin=machine_memory.usable / ranks)


def shared_memory_row(memory: SharedMemory) -> Row:
    if memory.trouble:
        remedy = f"NCCL and DataLoader workers need {_SHARED}: mount a tmpfs there."
        return error("shared memory", f"no file can be written to {_SHARED}: {memory.trouble}", remedy=remedy)
    told = f"{_SHARED}: {format_bytes(memory.total)}, {format_bytes(memory.free)} free; "
    told += "a file was written and mapped there"
    if memory.free < _LITTLE_SHARED:
        why = "a DataLoader's worker that finds it full dies of a bus error"
        small = memory.total < _LITTLE_SHARED
        remedy = "docker run --ipc=host, or --shm-size=8g; in Kubernetes an emptyDir with medium: Memory at /dev/shm."
        return warning("shared memory", told, why, remedy=remedy if small else "Remove the files of dead jobs there.")
    return ok("shared memory", told, margin=memory.free)


def limit_rows(limits: ProcessLimits) -> Iterator[Row]:
    """Yield the report rows about open files, processes and core dumps."""
    soft, hard = limits.files
    told = f"{limits.open} open of {_limit_text(soft)} (ulimit -n); up to {_limit_text(hard)} may be asked for"
    if soft < _FEW_FILES:
        why = "each tensor that a DataLoader's worker sends may keep a file open, and so does each connection"
        more = "LimitNOFILE= of its unit, or docker run --ulimit nofile=65536: the hard limit is low, too."
        remedy = f"ulimit -n {min(hard, _ENOUGH_FILES):.0f} before the program starts." if hard > soft else more
        yield warning("open files", told, why, remedy=remedy, margin=soft)
    else:
        yield ok("open files", told, margin=soft - limits.open)
    most, name = limits.processes
    told = f"{limits.running:,} run of {_limit_text(most)} ({name})"
    if most - limits.running < _FEW_PROCESSES:
        why = "threads count too: a rank of JAX or torch has a hundred, and more with NCCL"
        yield warning("processes", told, why, remedy=f"Raise {name}, or end leftover processes of other jobs.")
    else:
        yield ok("processes", told, margin=most - limits.running)
    if limits.core:
        yield ok("core dumps", f"up to {_limit_text(limits.core)} bytes (ulimit -c)", margin=limits.core)
    else:
        yield not_seen("core dumps", "ulimit -c is 0: a crash in C leaves no core file, only what faulthandler prints")


def locked_memory_row(limits: ProcessLimits, infiniband_ports: Sequence[str]) -> Row | None:
    """Return a report row that says whether memory can be locked for RDMA; None without InfiniBand."""
    if not infiniband_ports:
        return None
    told = f"{_limit_text(limits.locked)} bytes (ulimit -l), for {', '.join(infiniband_ports)}"
    if math.isinf(limits.locked):
        return ok("locked memory", told)
    remedy = "ulimit -l unlimited: memory must be locked before an adapter may write into it."
    return warning("locked memory", told, remedy=remedy, margin=limits.locked)


def huge_pages_row(setting: str, tpu_count: int) -> Row | None:
    """Return a report row that says whether transparent huge pages are set as TPUs need them; None without a TPU.

    Source: jax/_src/cloud_tpu_init.py, which warns of this.
    """
    if not tpu_count:
        return None
    if not setting:
        return not_determined("huge pages", "/sys/kernel/mm/transparent_hugepage/enabled cannot be read")
    if setting == "always":
        return ok("huge pages", "always, as the TPU's runtime needs them")
    remedy = 'sudo sh -c "echo always > /sys/kernel/mm/transparent_hugepage/enabled".'
    return warning(
        "huge pages", f"{setting}: JAX says that the TPU's runtime starts and stops more slowly", remedy=remedy
    )


def _limit_text(amount: float) -> str:
    return "unlimited" if math.isinf(amount) else f"{amount:,.0f}"
