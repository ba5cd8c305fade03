"""Find out which host of which job this is, from the options of `allranks run` and the variables of engines.

| engine | which host | how many | host 0 |
|---|---|---|---|
| Kubeflow Trainer | PET_NODE_RANK | PET_NNODES | PET_MASTER_ADDR, PET_MASTER_PORT |
| JobSet, indexed Job | JOB_COMPLETION_INDEX | --hosts | JOBSET_NAME, REPLICATED_JOB_NAME |
| Open MPI, one process a host | OMPI_COMM_WORLD_RANK | OMPI_COMM_WORLD_SIZE | --coordinator, or the host of mpirun |
| MPICH, Intel MPI | PMI_RANK | PMI_SIZE | --coordinator |
| Slurm, in a step of one task a node | SLURM_NODEID | SLURM_STEP_NUM_NODES | SLURM_STEP_NODELIST |
| SkyPilot | SKYPILOT_NODE_RANK | SKYPILOT_NUM_NODES | SKYPILOT_NODE_IPS |
| TPU VM | TPU_WORKER_ID | TPU_WORKER_HOSTNAMES | the first of them |
| any | NODE_RANK | NNODES | MASTER_ADDR, MASTER_PORT |

An engine that says nothing of several hosts is not looked at. The first of the table that says something counts; an
outer one with more hosts contradicts it. Options override variables only where these say nothing.
"""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from allranks.engine_variables import hosts_of_node_list, in_slurm_step, mpi_job, mpirun_host, read_number
from allranks.errors import ContradictingSigns

# Where the launchers meet if nobody says at which port: one of a few, drawn by the job's name, so that two jobs of one
# host rarely try the same. Below the ports that the kernel, torch and JAX choose.
FIRST_PORT, PORTS, CANDIDATES = 20000, 9973, 8
USUAL_PORT = 29400
JOB_KEY = "ALLRANKS_JOB_KEY"
ALONE = "`--hosts 1` runs on this host alone."


@dataclass(frozen=True, slots=True)
class HostPlace:
    """Which host of a job this is.

    - ``fewest``, ``most``: how many hosts the job needs, and may have.
    - ``number``: of this host, from 0; None if host 0 chooses it.
    - ``coordinator``: the name or address of host 0. ``ports``: where its launcher listens, the first that is free.
    - ``job``: what tells this job from others of the engine; "" if nothing does.
    - ``names``: the names of the hosts, if known. ``evidence``: what says so.
    """

    most: int
    number: int | None
    coordinator: str
    ports: tuple[int, ...]
    fewest: int = 0
    job: str = ""
    names: tuple[str, ...] = ()
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class HostOptions:
    """The options of `allranks run` about hosts. None: not given. ``job`` is torchrun's --rdzv-id."""

    hosts: tuple[int, int] | None = None
    number: int | None = None
    coordinator: str | None = None
    job: str = ""


@dataclass(frozen=True, slots=True)
class _EngineVariables:
    """What one engine says. None: it does not say."""

    engine: str
    evidence: str
    number: int | None = None
    hosts: int | None = None
    coordinator: str | None = None
    port: int | None = None
    job: str = ""
    names: tuple[str, ...] = ()


def place_of(options: HostOptions, environ: Mapping[str, str]) -> HostPlace | None:
    """Return which host of which job this is, or None for a job on this host alone.

    Raises ContradictingSigns where options and variables contradict each other, or something is missing.
    """
    if options.hosts == (1, 1):
        return None
    found = [signs for engine in _ENGINES if (signs := engine(environ)) is not None]
    several = [signs for signs in found if signs.hosts is None or signs.hosts > 1]
    is_said = any(one is not None for one in (options.hosts, options.number, options.coordinator))
    if not is_said and not [signs for signs in several if signs.hosts is not None]:
        return None
    signs = several[0] if several else _EngineVariables("", "")
    for outer in several[1:]:
        if signs.hosts is not None and outer.hosts is not None and outer.hosts > signs.hosts:
            raise ContradictingSigns(
                f"{signs.evidence}, but {outer.evidence}.",
                remedy=f"Unset the variables of the one that does not start this job, or give --hosts. {ALONE}",
            )
    return _combine(options, signs)


def note_of(environ: Mapping[str, str]) -> str:
    """Return a line for a job that has several hosts, of which `allranks run` was started on one; "" otherwise."""
    nodes = read_number(environ, "SLURM_JOB_NUM_NODES", 1)
    if nodes == 1 or in_slurm_step(environ):
        return ""
    return (
        f"Slurm gave this job {nodes} hosts, and allranks run was started on one of them: "
        "`srun --ntasks-per-node=1 allranks run ...` starts it on all."
    )


def _combine(options: HostOptions, signs: _EngineVariables) -> HostPlace:
    fewest, most = options.hosts or (signs.hosts, signs.hosts)
    if most is None or fewest is None:
        raise ContradictingSigns(
            f"{signs.evidence or '--host-rank or --coordinator was given'}, but nothing says how many hosts the job "
            "has.",
            remedy="Give --hosts N.",
        )
    if signs.hosts is not None and not fewest <= signs.hosts <= most:
        raise ContradictingSigns(
            f"--hosts {most}, but {signs.evidence}.", remedy="Leave --hosts out, or start the job on as many hosts."
        )
    if None not in (options.number, signs.number) and options.number != signs.number:
        raise ContradictingSigns(
            f"--host-rank {options.number}, but {signs.evidence}.", remedy="Leave --host-rank out."
        )
    number = signs.number if options.number is None else options.number
    if number is not None and not 0 <= number < most:
        raise ContradictingSigns(
            f"host {number} of {most}: there is no such host.", remedy=f"Hosts are numbered from 0 to {most - 1}."
        )
    host, ports = _address(options, signs)
    names = signs.names if len(signs.names) == most else ()
    evidence = signs.evidence or f"--hosts {most if fewest == most else f'{fewest}:{most}'}"
    return HostPlace(
        most, number, host, ports, fewest=fewest, job=options.job or signs.job, names=names, evidence=evidence
    )


def _address(options: HostOptions, signs: _EngineVariables) -> tuple[str, tuple[int, ...]]:
    if options.coordinator is not None:
        return _split_address(options.coordinator)
    if not signs.coordinator:
        raise ContradictingSigns(
            f"{signs.evidence or '--hosts was given'}, but nothing says which host is host 0.",
            remedy="Give --coordinator HOST:PORT, the same on all hosts: the name of host 0 and a free port there.",
        )
    if signs.port is not None:
        return signs.coordinator, (signs.port,)
    first = zlib.crc32(f"{signs.engine} {signs.job}".encode())
    return signs.coordinator, tuple(FIRST_PORT + (first + 7 * i) % PORTS for i in range(CANDIDATES))


def _split_address(text: str) -> tuple[str, tuple[int, ...]]:
    host, _, port = text.rpartition(":")
    if _is_ipv6(host):
        raise ContradictingSigns(
            f"--coordinator {text}: an IPv6 address with a port needs brackets: [{host}]:{port}.",
            remedy=f"The whole may also be the address: [{text}]:{USUAL_PORT}." if _is_ipv6(text) else "",
        )
    if ":" not in text or text.endswith("]") or _is_ipv6(text):
        host, port = text, str(USUAL_PORT)
    name = host.removeprefix("[").removesuffix("]")
    is_name = bool(name) and (":" not in name or _is_ipv6(name))
    if not is_name or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ContradictingSigns(f"--coordinator {text}: expected HOST:PORT, e.g. node0:{USUAL_PORT}.")
    return name, (int(port),)


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def _kubeflow(environ: Mapping[str, str]) -> _EngineVariables | None:
    hosts = read_number(environ, "PET_NNODES")
    if hosts is None:
        return None
    number, master = read_number(environ, "PET_NODE_RANK"), environ.get("PET_MASTER_ADDR")
    evidence = f"Kubeflow says host {number} of {hosts} (PET_NODE_RANK, PET_NNODES)"
    return _EngineVariables("Kubeflow", evidence, number, hosts, master, read_number(environ, "PET_MASTER_PORT"))


def _indexed_job(environ: Mapping[str, str]) -> _EngineVariables | None:
    number = read_number(environ, "JOB_COMPLETION_INDEX")
    if number is None:
        return None
    jobset, job = environ.get("JOBSET_NAME"), environ.get("REPLICATED_JOB_NAME")
    coordinator = f"{jobset}-{job}-0-0.{jobset}" if jobset and job else None
    evidence = f"Kubernetes says host {number} (JOB_COMPLETION_INDEX)"
    return _EngineVariables("Kubernetes", evidence, number, None, coordinator, USUAL_PORT)


def _open_mpi(environ: Mapping[str, str]) -> _EngineVariables | None:
    rank, size = read_number(environ, "OMPI_COMM_WORLD_RANK"), read_number(environ, "OMPI_COMM_WORLD_SIZE")
    if rank is None or size is None or size == 1:
        return None
    evidence = f"Open MPI says process {rank} of {size} (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE)"
    _refuse_several_launchers(evidence, read_number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE", 1), "--npernode 1")
    host = mpirun_host(environ)
    return _EngineVariables("Open MPI", evidence, rank, size, host and host.strip("[]"), job=mpi_job(environ))


def _pmi(environ: Mapping[str, str]) -> _EngineVariables | None:
    rank, size = read_number(environ, "PMI_RANK"), read_number(environ, "PMI_SIZE")
    if rank is None or size is None or size == 1:
        return None
    evidence = f"PMI says process {rank} of {size} (PMI_RANK, PMI_SIZE)"
    _refuse_several_launchers(evidence, read_number(environ, "MPI_LOCALNRANKS", 1), "-ppn 1")
    return _EngineVariables("PMI", evidence, rank, size)


def _slurm(environ: Mapping[str, str]) -> _EngineVariables | None:
    if not in_slurm_step(environ):
        return None
    hosts = read_number(environ, "SLURM_STEP_NUM_NODES", read_number(environ, "SLURM_NNODES", 1))
    tasks = read_number(environ, "SLURM_STEP_NUM_TASKS", read_number(environ, "SLURM_NTASKS", 1))
    number = read_number(environ, "SLURM_NODEID")
    evidence = f"Slurm says node {number} of {hosts} (SLURM_NODEID, SLURM_STEP_NUM_NODES)"
    if hosts is not None and tasks is not None and tasks > hosts:
        several = f"Slurm started {tasks} tasks on {hosts} hosts (SLURM_STEP_NUM_TASKS)"
        _refuse_several_launchers(several, tasks, "srun --ntasks-per-node=1")
    job = f"{environ.get('SLURM_JOB_ID', '')}.{environ.get('SLURM_STEP_ID', '')}"
    names = hosts_of_node_list(environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", ""))
    return _EngineVariables("Slurm", evidence, number, hosts, names[0] if names else None, job=job, names=names)


def _skypilot(environ: Mapping[str, str]) -> _EngineVariables | None:
    number, addresses = read_number(environ, "SKYPILOT_NODE_RANK"), environ.get("SKYPILOT_NODE_IPS", "").split()
    if number is None or not addresses:
        return None
    hosts = read_number(environ, "SKYPILOT_NUM_NODES", len(addresses))
    evidence = f"SkyPilot says host {number} of {hosts} (SKYPILOT_NODE_RANK, SKYPILOT_NUM_NODES)"
    job = environ.get("SKYPILOT_TASK_ID", "")
    return _EngineVariables("SkyPilot", evidence, number, hosts, addresses[0], job=job, names=tuple(addresses))


def _tpu(environ: Mapping[str, str]) -> _EngineVariables | None:
    worker, names = read_number(environ, "TPU_WORKER_ID"), environ.get("TPU_WORKER_HOSTNAMES", "").split(",")
    if worker is None or not names[0]:
        return None
    slices, number = (
        read_number(environ, "MEGASCALE_NUM_SLICES", 1) or 1,
        read_number(environ, "MEGASCALE_SLICE_ID", 0) or 0,
    )
    first = environ.get("MEGASCALE_COORDINATOR_ADDRESS", names[0]).partition(":")[0]
    hosts = slices * len(names)
    host = number * len(names) + worker
    evidence = f"TPU_WORKER_ID and TPU_WORKER_HOSTNAMES say host {host} of {hosts}"
    return _EngineVariables("TPU", evidence, host, hosts, first, names=tuple(names) if slices == 1 else ())


def _any(environ: Mapping[str, str]) -> _EngineVariables | None:
    number, hosts = read_number(environ, "NODE_RANK"), read_number(environ, "NNODES")
    if number is None or hosts is None:
        return None
    evidence = f"NODE_RANK and NNODES say host {number} of {hosts}"
    port = read_number(environ, "MASTER_PORT", USUAL_PORT)
    return _EngineVariables("NODE_RANK", evidence, number, hosts, environ.get("MASTER_ADDR"), port)


_ENGINES: Sequence[Callable[[Mapping[str, str]], _EngineVariables | None]] = (
    _kubeflow,
    _indexed_job,
    _open_mpi,
    _pmi,
    _slurm,
    _skypilot,
    _tpu,
    _any,
)


def _refuse_several_launchers(evidence: str, on_a_host: int | None, remedy: str) -> None:
    if on_a_host is not None and on_a_host > 1:
        raise ContradictingSigns(
            f"{evidence}, and each of them is an allranks run: expected one on each host, found several.",
            remedy=f"Start one process on each host ({remedy}), and give the number of its ranks to allranks run -n.",
        )
