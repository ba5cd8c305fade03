"""Decide rank, size and backend of this process, from the launcher's variables and the state of the frameworks.

The launchers, the innermost first: a torchrun that srun started decides for its workers, Slurm only for torchrun.

    allranks    ALLRANKS_RANK, ALLRANKS_SIZE                     Slurm    SLURM_PROCID, SLURM_STEP_NUM_TASKS, in a step
    torchrun    RANK, WORLD_SIZE (with a MASTER_ADDR)            TPU      TPU_WORKER_ID, TPU_WORKER_HOSTNAMES
    Open MPI    OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE       JAX      the result of its own cluster detection
    PMI         PMI_RANK, PMI_SIZE

An initialised framework overrides all of them: it has joined the other ranks. It may have *more* ranks than the
launcher started (a script that forks ranks itself), never fewer: the other processes would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from allranks.engine_variables import in_interactive_step, in_slurm_step, read_number
from allranks.errors import AllranksError, BarrierTimeout, ContradictingSigns, StoreError
from allranks.world.rendezvous_address import rendezvous_address

FRAMEWORKS = ("jax", "torch")
_NO_FRAMEWORK = 'Install one here: pip install "allranks[jax]" or "allranks[torch]".'
_ALONE = 'or say that this process works alone: allranks.init(backend="single")'


@dataclass(frozen=True, slots=True)
class Framework:
    """``initialised`` is the framework's (rank, size); ``started`` (JAX): devices were used before the ranks joined."""

    installed: bool = False
    imported: bool = False
    initialised: tuple[int, int] | None = None
    started: bool = False


@dataclass(frozen=True, slots=True)
class LauncherVariables:
    """The variables of one launcher. Rank and size are None if only JAX's own detection knows them."""

    name: str
    rank: int | None
    size: int | None
    evidence: str
    local_rank: int | None = None


@dataclass(frozen=True, slots=True)
class LauncherEnvironment:
    """All inputs of the decision. ``backend`` is the argument of ``init``; ``cluster`` is the cluster that JAX detects.

    ``is_child``: multiprocessing started this process (``mp.spawn``, a worker of a loader). ``is_importing``: this
    child is still importing its parent's main module.
    """

    environ: Mapping[str, str]
    jax: Framework = Framework()
    torch: Framework = Framework()
    backend: str | None = None
    cluster: str | None = None
    is_child: bool = False
    is_importing: bool = False

    def framework(self, name: str) -> Framework:
        return self.jax if name == "jax" else self.torch


@dataclass(frozen=True, slots=True)
class Decision:
    """The rank and size of this process, and the backend of its world.

    ``backend`` is ``single``, ``jax`` or ``torch``. ``address`` is the rendezvous, or None if the framework finds it
    itself or has joined already. ``evidence`` describes the variables or the framework state that decided.
    """

    backend: str
    rank: int | None
    size: int | None
    launcher: str
    evidence: str
    address: str | None = None
    local_rank: int | None = None
    local_devices: int | None = None

    def unmet(self, seconds: float, why: str) -> BarrierTimeout:
        """Return the error of a rank that waited for the others in vain. No store says yet who is missing."""
        return BarrierTimeout(
            f"rank {self.rank}: not all {self.size} ranks joined at {self.address} within {seconds:g} s: {why}",
            remedy=f"Were all started, and can they reach that address? ({self.evidence})",
        )

    def elsewhere(self) -> ContradictingSigns:
        """Return the error of rank 0 if the address of the rendezvous is that of another host."""
        return ContradictingSigns(
            f"rank {self.rank}: {self.address}, where mpirun runs, is no address of this host ({self.evidence}).",
            remedy="Set MASTER_ADDR (the host of rank 0) and MASTER_PORT (a free port there) for every rank.",
        )

    def port_taken(self) -> StoreError:
        """Return the error of rank 0 for another process that already listens at the address of the rendezvous."""
        port = "JAX_COORDINATOR_PORT" if self.backend == "jax" else "MASTER_PORT"
        return StoreError(
            f"rank {self.rank}: cannot listen at {self.address}: another process listens there ({self.evidence}).",
            remedy=f"`ss -ltnp` shows which process. Set {port} to a free port, the same one on every rank.",
        )


def decide(environment: LauncherEnvironment) -> Decision:
    """Return the decision for this process. Raises ContradictingSigns, which names both signs and what to do."""
    if environment.backend not in (None, "single", *FRAMEWORKS):
        raise AllranksError(
            f"allranks.init(backend={environment.backend!r}): a backend is None, 'single', 'jax' or 'torch'."
        )
    launcher = launcher_of(environment.environ, cluster=environment.cluster)
    met = _initialised_framework(environment)
    if met is not None and met[2] > 1:
        return _join_initialised(environment, launcher, met)
    if environment.backend == "single":
        return Decision("single", 0, 1, "", "asked for")
    if environment.is_child and met is None:
        _refuse_child(launcher, is_importing=environment.is_importing)
    if launcher is not None:
        _refuse_lost_processes(launcher, launchers_of(environment.environ)[1:])
    if launcher is not None and launcher.size != 1 and not (met and launcher.size is None):
        return _join_launched(environment, launcher, met)
    if launcher is None:
        _refuse_batch_script(environment.environ)
    if met is not None:
        return Decision(met[0], 0, 1, "", _describe_initialised(met))
    name, evidence = (
        (launcher.name, launcher.evidence) if launcher is not None else ("", "asked for" if environment.backend else "")
    )
    if environment.backend in FRAMEWORKS and not environment.framework(environment.backend).installed:
        raise ContradictingSigns(
            f"allranks.init(backend={environment.backend!r}): {environment.backend} is not installed here.",
            remedy=f'Install it (pip install "allranks[{environment.backend}]"), or leave backend out.',
        )
    is_torch = environment.backend == "torch" or (launcher is not None and _imports_only_torch(environment))
    return Decision("torch" if is_torch else "single", 0, 1, name, evidence)


def _imports_only_torch(environment: LauncherEnvironment) -> bool:
    """Return whether torch would carry a larger world here. If so, a world of one initialises a process group."""
    return environment.backend is None and environment.torch.imported and not environment.jax.imported


def launcher_of(environ: Mapping[str, str], *, cluster: str | None = None) -> LauncherVariables | None:
    """Return the innermost launcher, found by its variables, or None if no launcher has set any."""
    if launchers := launchers_of(environ):
        return launchers[0]
    hosts = environ.get("TPU_WORKER_HOSTNAMES", "")
    if "," in hosts or _number_of_variable(environ, "MEGASCALE_NUM_SLICES", 1) > 1:
        return LauncherVariables("TPU", None, None, f"TPU_WORKER_HOSTNAMES={hosts}")
    return LauncherVariables(cluster, None, None, f"JAX's cluster detection sees {cluster!r}") if cluster else None


def launchers_of(environ: Mapping[str, str]) -> tuple[LauncherVariables, ...]:
    """Return the launchers whose variables give a rank and a size, the innermost first."""
    plain = (
        ("allranks", "ALLRANKS_RANK", "ALLRANKS_SIZE", "ALLRANKS_LOCAL_RANK"),
        ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
        ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    )
    found = [
        _read_launcher(environ, name, rank, size, local)
        for name, rank, size, local in plain
        if rank in environ and size in environ and (name != "torchrun" or "MASTER_ADDR" in environ)
    ]
    if in_slurm_step(environ):
        size = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS"
        found.append(_read_launcher(environ, "Slurm", "SLURM_PROCID", size, "SLURM_LOCALID"))
    return tuple(found)


def _read_launcher(environ: Mapping[str, str], name: str, rank: str, size: str, local: str) -> LauncherVariables:
    evidence = f"{name} says rank {environ[rank]} of {environ[size]} ({rank}, {size})"
    r, s = _number_of_variable(environ, rank), _number_of_variable(environ, size)
    if not 0 <= r < s:
        raise ContradictingSigns(
            f"{evidence}, but there is no such rank: expected a rank from 0 to the size minus 1.",
            remedy=f"Correct or unset {rank} and {size}.",
        )
    return LauncherVariables(name, r, s, evidence, _number_of_variable(environ, local) if local in environ else None)


def _refuse_lost_processes(inner: LauncherVariables, others: Iterable[LauncherVariables]) -> None:
    """Raise ContradictingSigns if an outer launcher started more processes than the inner launcher has ranks.

    An inner launcher may start more. `allranks run` removes the variables of outer launchers, so others were set
    inside.
    """
    for other in others:
        if inner.name == "allranks" and (inner.rank, inner.size) != (other.rank, other.size):
            raise ContradictingSigns(
                f"{inner.evidence}, but {other.evidence}: several processes would have the same rank.",
                remedy=f"Start the program with `allranks run` or with {other.name}, not with one inside the other.",
            )
        if (inner.size or 1) < (other.size or 1):
            raise ContradictingSigns(
                f"{other.evidence}, but {inner.evidence}: {other.size} processes would be {inner.size}-rank worlds, "
                "each of which takes itself for all.",
                remedy=f"Have {inner.name} start all {other.size}, or unset the variables of the one you do not mean.",
            )


def _refuse_child(launcher: LauncherVariables | None, *, is_importing: bool) -> None:
    """Raise ContradictingSigns in a child process of multiprocessing: the child of a rank is not a rank.

    Several children that have no rank numbers would each run as a single-process world.
    """
    if launcher is not None and launcher.name == "allranks":
        raise ContradictingSigns(
            f"{launcher.evidence}, but this process is a child of that rank, started by multiprocessing.",
            remedy='Call allranks.init() in the rank itself, below `if __name__ == "__main__":`.',
        )
    if launcher is None and not is_importing:
        raise ContradictingSigns(
            "this process was started by multiprocessing (mp.spawn, a worker of a loader), but no variable says "
            "which of several ranks it is: each process would be rank 0 of 1.",
            remedy="Start the program with `allranks run -n N` instead of mp.spawn, call "
            f"init_process_group(rank=..., world_size=...) before allranks.init(), {_ALONE}.",
        )


def _refuse_batch_script(environ: Mapping[str, str]) -> None:
    """Raise ContradictingSigns in a Slurm batch script: it has Slurm's task count, but is one process and no step."""
    tasks = _number_of_variable(environ, "SLURM_NTASKS", 1)
    if tasks == 1 or "SLURM_PROCID" not in environ or in_interactive_step(environ):
        return
    raise ContradictingSigns(
        f"Slurm says {tasks} tasks (SLURM_NTASKS), but this process was not started by srun (it is in no job step): "
        "it would run as a single process, without the other tasks.",
        remedy=f"Start it with `srun python train.py`, {_ALONE}.",
    )


def _initialised_framework(environment: LauncherEnvironment) -> tuple[str, int, int] | None:
    """Return (framework, rank, size) of the initialised framework, or None. Raises ContradictingSigns."""
    said = {name: met for name in FRAMEWORKS if (met := environment.framework(name).initialised) is not None}
    if not said:
        return None
    if len(set(said.values())) > 1:
        both = " but ".join(_describe_initialised((name, *met)) for name, met in said.items())
        raise ContradictingSigns(f"{both}.", remedy="Initialise both with the same rank and size, or only one of them.")
    name = environment.backend if environment.backend in said else next(iter(said))
    return (name, *said[name])


def _join_initialised(
    environment: LauncherEnvironment, launcher: LauncherVariables | None, met: tuple[str, int, int]
) -> Decision:
    name, rank, size = met
    if environment.backend not in (None, name):
        raise ContradictingSigns(
            f"allranks.init(backend={environment.backend!r}) was asked for, but {_describe_initialised(met)}.",
            remedy=f"Leave backend out, or do not initialise {_module_of(name)}.",
        )
    if launcher is not None and launcher.size is not None and launcher.size > size:
        _fewer_than_launched(launcher, met)
    local = launcher.local_rank if launcher is not None and launcher.size == size else None
    where = launcher.name if launcher else ""
    return Decision(name, rank, size, where, _describe_initialised(met), local_rank=local)


def _join_launched(
    environment: LauncherEnvironment, launcher: LauncherVariables, met: tuple[str, int, int] | None
) -> Decision:
    if met is not None:
        _fewer_than_launched(launcher, met)
    backend = _store_framework(environment, launcher)
    if backend == "jax" and environment.jax.started:
        raise ContradictingSigns(
            f"{launcher.evidence}, but JAX has already used its devices as a world of one, and cannot join any more.",
            remedy="Call allranks.init() before the first jax.devices(), jax.numpy call or jit.",
        )
    address = rendezvous_address(environment.environ, launcher.name, launcher.size, backend=backend)
    local_devices = None
    if address is None and (backend == "torch" or launcher.name == "PMI"):
        raise ContradictingSigns(
            f"{launcher.evidence}, but no variable says at which address the ranks can join.",
            remedy="Set MASTER_ADDR (the host of rank 0) and MASTER_PORT (a free port there) for every rank.",
        )
    shares_host = launcher.name == "Slurm" or _number_of_variable(environment.environ, "LOCAL_WORLD_SIZE", 1) > 1
    if address is not None and shares_host and "JAX_LOCAL_DEVICE_IDS" not in environment.environ:
        local_devices = launcher.local_rank  # as JAX's own detections do
    return Decision(
        backend,
        launcher.rank,
        launcher.size,
        launcher.name,
        launcher.evidence,
        address=address,
        local_rank=launcher.local_rank,
        local_devices=local_devices,
    )


def _store_framework(environment: LauncherEnvironment, launcher: LauncherVariables) -> str:
    """Return the framework (``jax`` or ``torch``) whose store carries the world; rank and size are known already.

    It is the requested framework; else the only imported one; else torch under torchrun; else jax.
    """
    installed = [name for name in FRAMEWORKS if environment.framework(name).installed]
    wanted = environment.backend or ("jax" if launcher.size is None else None)
    if wanted is not None and wanted not in installed:
        raise ContradictingSigns(
            f"{launcher.evidence}, but {wanted} is not installed here, which the ranks need to exchange values.",
            remedy=f'Install it (pip install "allranks[{wanted}]"), {_ALONE}.',
        )
    if not installed:
        raise ContradictingSigns(
            f"{launcher.evidence}, but neither jax nor torch is installed here, so the ranks cannot exchange values.",
            remedy=f"{_NO_FRAMEWORK[:-1]}, {_ALONE}.",
        )
    if wanted is not None:
        return wanted
    imported = [name for name in installed if environment.framework(name).imported]
    if len(imported) == 1:
        return imported[0]
    first = "torch" if launcher.name == "torchrun" else "jax"
    return first if first in installed else installed[0]


def _fewer_than_launched(launcher: LauncherVariables, met: tuple[str, int, int]) -> NoReturn:
    name, _, size = met
    raise ContradictingSigns(
        f"{launcher.evidence}, but {_describe_initialised(met)}: {launcher.size} processes would be {size}-rank "
        "worlds, each of which takes itself for all.",
        remedy=f"Call allranks.init() first and leave out your own {_module_of(name)} call, or give it all ranks.",
    )


def _describe_initialised(met: tuple[str, int, int]) -> str:
    name, rank, size = met
    return f"{_module_of(name)} is initialised as rank {rank} of {size}"


def _module_of(name: str) -> str:
    return f"{name}.distributed"


def _number_of_variable(environ: Mapping[str, str], name: str, default: int = -1) -> int:
    found = read_number(environ, name)
    return default if found is None else found
