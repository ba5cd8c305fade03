"""Judge one machine's cores, memory and limits: return the rows of the report from values. This module does no I/O."""

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
class Cores:
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
class Memory:
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
class Limits:
    """The limits of a process, and what is in use. ``inf`` means no limit; ``files`` is (soft, hard).

    ``processes`` is the lowest limit (RLIMIT_NPROC, the cgroup's, the kernel's), with its name. ``running`` is what
    counts against that limit.
    """

    files: tuple[float, float]
    open: int
    processes: tuple[float, str]
    running: int
    core: float
    locked: float


def cores_row(found: Cores, ranks: int) -> Row:
    """Return a report row that says whether the ranks of this host have as many cores as libraries count."""
    usable = min(found.allowed, found.quota or math.inf)
    told = [f"{found.counted} in the machine, {found.allowed} allowed"]
    if found.quota is not None:
        told[0] += f", the cgroup's quota is {found.quota:g}"
    if found.threads:
        told[0] += f"; OMP_NUM_THREADS={found.threads}"
    share = max(1, int(usable // ranks))
    if ranks > usable:
        told.append(f"{ranks} ranks take turns on {usable:g}")
        return warning(
            "cores", *told, remedy="Use fewer ranks, or more cores: steps will be slow, and timeouts may expire."
        )
    if found.of_a_rank == 1 and found.counted > ranks:
        told.append("a rank is bound to 1 core, and the workers that load its data with it")
        return warning(
            "cores", *told, remedy="Use srun --cpus-per-task=K (Slurm binds a task to that many), or taskset."
        )
    if found.threads * ranks > usable:
        told.append(f"{ranks} ranks x {found.threads} threads are more than {usable:g} cores")
        return warning("cores", *told, remedy=f"Set OMP_NUM_THREADS={share}.")
    if found.quota is not None and found.quota < found.allowed and not found.threads:
        told.append(f"libraries start a thread for each of {found.allowed}, and are then throttled to {found.quota:g}")
        return warning(
            "cores", *told, remedy=f"Set OMP_NUM_THREADS={share}, and as many DataLoader workers, not os.cpu_count()."
        )
    return ok("cores", *told, margin=usable / ranks)


def memory_row(found: Memory, ranks: int) -> Row:
    told = f"{format_bytes(found.total)}, {format_bytes(found.usable)} available"
    if found.limit is not None and found.limit < found.total:
        told = (
            f"{format_bytes(found.total)}, but the cgroup ends a process at {format_bytes(found.limit)}; "
            f"{format_bytes(found.usable)} available"
        )
    if found.usable < GB * ranks:
        a_rank = (
            f"{format_bytes(found.usable / ranks)} for each of {ranks} ranks"
            if ranks > 1
            else "less than a framework takes"
        )
        return warning(
            "memory", told, a_rank, remedy="End other processes here, or request more (srun --mem, a larger pod)."
        )
    return ok("memory", told, margin=found.usable / ranks)


def shared_memory(found: SharedMemory) -> Row:
    if found.trouble:
        remedy = f"NCCL and DataLoader workers need {_SHARED}: mount a tmpfs there."
        return error("shared memory", f"no file can be written to {_SHARED}: {found.trouble}", remedy=remedy)
    told = (
        f"{_SHARED}: {format_bytes(found.total)}, {format_bytes(found.free)} free; a file was written and mapped there"
    )
    if found.free < _LITTLE_SHARED:
        why = "a DataLoader's worker that finds it full dies of a bus error"
        small = found.total < _LITTLE_SHARED
        remedy = "docker run --ipc=host, or --shm-size=8g; in Kubernetes an emptyDir with medium: Memory at /dev/shm."
        return warning("shared memory", told, why, remedy=remedy if small else "Remove the files of dead jobs there.")
    return ok("shared memory", told, margin=found.free)


def limit_rows(found: Limits) -> Iterator[Row]:
    """Yield the report rows about open files, processes and core dumps."""
    soft, hard = found.files
    told = f"{found.open} open of {_limit_text(soft)} (ulimit -n); up to {_limit_text(hard)} may be asked for"
    if soft < _FEW_FILES:
        why = "each tensor that a DataLoader's worker sends may keep a file open, and so does each connection"
        more = "LimitNOFILE= of its unit, or docker run --ulimit nofile=65536: the hard limit is low, too."
        remedy = f"ulimit -n {min(hard, _ENOUGH_FILES):.0f} before the program starts." if hard > soft else more
        yield warning("open files", told, why, remedy=remedy, margin=soft)
    else:
        yield ok("open files", told, margin=soft - found.open)
    most, name = found.processes
    told = f"{found.running:,} run of {_limit_text(most)} ({name})"
    if most - found.running < _FEW_PROCESSES:
        why = "threads count too: a rank of JAX or torch has a hundred, and more with NCCL"
        yield warning("processes", told, why, remedy=f"Raise {name}, or end leftover processes of other jobs.")
    else:
        yield ok("processes", told, margin=most - found.running)
    if found.core:
        yield ok("core dumps", f"up to {_limit_text(found.core)} bytes (ulimit -c)", margin=found.core)
    else:
        yield not_seen("core dumps", "ulimit -c is 0: a crash in C leaves no core file, only what faulthandler prints")


def locked_memory(found: Limits, fabric: Sequence[str]) -> Row | None:
    """Return a report row that says whether memory can be locked for RDMA; None without InfiniBand."""
    if not fabric:
        return None
    told = f"{_limit_text(found.locked)} bytes (ulimit -l), for {', '.join(fabric)}"
    if math.isinf(found.locked):
        return ok("locked memory", told)
    remedy = "ulimit -l unlimited: memory must be locked before an adapter may write into it."
    return warning("locked memory", told, remedy=remedy, margin=found.locked)


def huge_pages(setting: str, tpus: int) -> Row | None:
    """Return a report row that says whether transparent huge pages are set as TPUs need them; None without a TPU.

    Source: jax/_src/cloud_tpu_init.py, which warns of this.
    """
    if not tpus:
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
