"""Build the environment of one rank: the variables that torchrun, Slurm or Open MPI would set, and those of our agent.

A rank inherits the environment of `allranks run`, except the variables in which an outer launcher describes its own
ranks: inside a Slurm allocation, SLURM_PROCID would contradict ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from allranks.launch.hang_limits import OTHER_STAGES, STEP
from allranks.launch.job import Job, Style
from allranks.launch.placement import Placement

# What launchers say about the one process they started; facts about the allocation (SLURM_JOB_ID) stay.
LAUNCHER_VARIABLES = frozenset(
    [
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME"),
        *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NNODES"),
        *("SLURM_JOB_NUM_NODES", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE", "SLURM_TASK_PID", "SLURM_GTIDS"),
        *("SLURM_LAUNCH_NODE_IPADDR", "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT"),
        *("JAX_COORDINATOR_BIND_ADDRESS", "JAX_PROCESS_COUNT", "JAX_PROCESS_INDEX", "JAX_LOCAL_DEVICE_IDS"),
    ]
)
# Settings of the user for the ranks.
USER_SETTINGS = (
    "ALLRANKS_MEMORY_FOLDER",
    "ALLRANKS_ON_HANG",
    STEP.variable,
    *(stage.variable for stage in OTHER_STAGES),
)
# Nothing that a rank inherits may make the fork server take itself for one.
RANK_ONLY = ("ALLRANKS_",)
LAUNCHER_PREFIXES = ("ALLRANKS_", "TORCHELASTIC_", "SLURM_STEP_", "OMPI_", "PMIX_", "PMI_")


@dataclass(frozen=True, slots=True)
class JobLocation:
    """The properties of a job's location; the same for all ranks.

    - ``job_id``: unique among jobs.
    - ``placement``: which ranks are on which host; ``placement.host`` is this one.
    - ``address``: the address of host 0 for the ranks: a loopback address if there is no other host.
    - ``coordinator_port``, ``master_port``: free ports there, for JAX's coordinator and for torch's store.
    - ``cores``: how many CPU cores the whole job may use.
    - ``control_path``: the launcher's datagram socket.
    - ``store_key``: the secret with which the ranks sign what they put into the store; "" for none.
    - ``agent_dir``: the folder of our sitecustomize.
    - ``base``: the environment to start from.
    """

    job_id: str
    placement: Placement
    address: str
    coordinator_port: int
    master_port: int
    cores: int
    control_path: str
    agent_dir: str
    base: Mapping[str, str]
    store_key: str = ""

    def local_rank(self, rank: int) -> int:
        """Return the number of a rank of this host among the ranks of this host."""
        return rank - self.placement.ranks.start


def rendezvous_flags(seconds: float) -> tuple[str, ...]:
    """Return the XLA flags that end a wait for other devices or ranks after ``seconds``, with a warning before."""
    whole = max(2, math.ceil(seconds))
    warning = min(20, whole // 2)
    waits = {
        "xla_cpu_collective_call_warn_stuck_timeout_seconds": warning,
        "xla_cpu_collective_call_terminate_timeout_seconds": whole - warning,
        "xla_cpu_collective_timeout_seconds": whole,
        "xla_gpu_first_collective_call_warn_stuck_timeout_seconds": warning,
        "xla_gpu_first_collective_call_terminate_timeout_seconds": whole - warning,
        "xla_gpu_executable_warn_stuck_timeout": warning,
        "xla_gpu_executable_terminate_timeout": whole - warning,
        "xla_gpu_nccl_termination_timeout_seconds": whole,
    }
    return tuple(f"--{name}={value}" for name, value in waits.items())


def for_rank(job: Job, rank: int, site: JobLocation) -> dict[str, str]:
    """Return the complete environment of one rank."""
    inherited = {
        name: value
        for name, value in site.base.items()
        if name not in LAUNCHER_VARIABLES and not name.startswith(LAUNCHER_PREFIXES)
    }
    return {
        **_thread_count_variables(job, site.cores, len(site.placement.ranks)),
        **({} if job.devices is None else {"JAX_PLATFORMS": "cpu"}),
        **inherited,
        **({} if job.devices is None else {"JAX_NUM_CPU_DEVICES": str(job.devices)}),
        **_rendezvous_variables(job, site.base.get("XLA_FLAGS", "")),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "PYTHONPATH": ":".join(filter(None, [site.agent_dir, site.base.get("PYTHONPATH")])),
        **_agent_variables(job, rank, site),
        **_STYLES[job.style](job, rank, site),
    }


def common_variables(envs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the variables that all ranks share. The fork server imports the frameworks in this environment."""
    first, *others = envs
    return {
        name: value
        for name, value in first.items()
        if not name.startswith(RANK_ONLY) and all(env.get(name) == value for env in others)
    }


def _thread_count_variables(job: Job, cores: int, ranks: int) -> dict[str, str]:
    """Return the variables that set thread counts. The user's own setting overrides each of them.

    NPROC sizes XLA's CPU thread pool. A step that is not awaited blocks one pool thread per device while the next step
    waits for the other device. So with fewer than two threads a device, these steps can deadlock.
    """
    share = max(1, cores // ranks)
    threads = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], str(share))
    return {**threads, "NPROC": str(max(2 * (job.devices or 1), share))}


def _rendezvous_variables(job: Job, own_flags: str) -> dict[str, str]:
    """Return the variables that set the timeouts of collectives. XLA uses the last of equal flags: the user's."""
    if job.rendezvous_timeout is None:
        return {}
    flags = " ".join(filter(None, [*job.xla_flags, own_flags]))
    return {"ALLRANKS_RENDEZVOUS_TIMEOUT": f"{job.rendezvous_timeout:g}", **({"XLA_FLAGS": flags} if flags else {})}


def _agent_variables(job: Job, rank: int, site: JobLocation) -> dict[str, str]:
    return {
        "ALLRANKS_RANK": str(rank),
        "ALLRANKS_SIZE": str(site.placement.size),
        "ALLRANKS_LOCAL_RANK": str(site.local_rank(rank)),
        "ALLRANKS_HOST": site.placement.name,
        "ALLRANKS_HOSTS": site.placement.to_text(),
        "ALLRANKS_HOST_RANK": str(site.placement.host),
        "ALLRANKS_JOB": site.job_id,
        "ALLRANKS_CONTROL": site.control_path,
        "ALLRANKS_STYLE": job.style,
        "ALLRANKS_COORDINATOR": f"{site.address}:{site.coordinator_port}",
        "ALLRANKS_GRACE": f"{job.grace:g}",
        "ALLRANKS_RESTART": str(job.restart),
        **({"ALLRANKS_RESTART_REASON": job.reason} if job.reason else {}),
        **{name: site.base[name] for name in USER_SETTINGS if name in site.base},
        **({"ALLRANKS_GUARD": _guard_mode(job)} if job.guard else {}),
        **({"ALLRANKS_PROBE": job.probe} if job.probe else {}),
        **({"ALLRANKS_STORE_KEY": site.store_key} if site.store_key else {}),
        **({} if job.hang_after is None else {STEP.variable: f"{job.hang_after:g}"}),
        **{one.variable: f"{job.hang_limits[one.name]:g}" for one in OTHER_STAGES if one.name in job.hang_limits},
        **({} if job.on_hang is None else {"ALLRANKS_ON_HANG": job.on_hang}),
    }


def _guard_mode(job: Job) -> str:
    """Return what the guard compares. In a rehearsal it compares calls only, since the probe compares values itself."""
    return "calls" if job.probe else "any-line" if job.guard_any_line else "1"


def _torch_variables(rank: int, site: JobLocation) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(site.local_rank(rank)),
        "WORLD_SIZE": str(site.placement.size),
        "LOCAL_WORLD_SIZE": str(len(site.placement.ranks)),
        "GROUP_RANK": str(site.placement.host),
        "MASTER_ADDR": site.address,
        "MASTER_PORT": str(site.master_port),
    }


def _default_variables(job: Job, rank: int, site: JobLocation) -> dict[str, str]:
    """Return torch's variables, and the variables from which our agent's cluster environment configures JAX."""
    return {
        **_torch_variables(rank, site),
        "JAX_COORDINATOR_ADDRESS": f"{site.address}:{site.coordinator_port}",
        "JAX_PROCESS_COUNT": str(site.placement.size),
        "JAX_PROCESS_INDEX": str(rank),
        **({"ROLE_NAME": job.role} if job.role else {}),
    }


def _torchrun_variables(job: Job, rank: int, site: JobLocation) -> dict[str, str]:
    """Return all variables that torchrun of torch 2.x sets. Torch itself serves the store, not torchrun's agent."""
    return {
        **_torch_variables(rank, site),
        "ROLE_RANK": str(rank),
        "ROLE_NAME": job.role or "default",
        "ROLE_WORLD_SIZE": str(site.placement.size),
        "GROUP_WORLD_SIZE": str(len(site.placement.hosts)),
        "TORCHELASTIC_RESTART_COUNT": str(job.restart),
        "TORCHELASTIC_MAX_RESTARTS": str(job.restarts),
        "TORCHELASTIC_RUN_ID": site.job_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": site.base.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }


def _slurm_variables(job: Job, rank: int, site: JobLocation) -> dict[str, str]:
    """Return the variables of one job step on one node.

    The node is localhost: JAX waits 300 s for a name that does not resolve.
    """
    node = "localhost"
    return {
        "SLURM_JOB_ID": site.base.get("SLURM_JOB_ID", str(site.master_port)),
        "SLURM_JOBID": site.base.get("SLURM_JOB_ID", str(site.master_port)),
        "SLURM_STEP_ID": "0",
        "SLURM_STEPID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NODEID": "0",
        "SLURM_NTASKS": str(job.ranks),
        "SLURM_NPROCS": str(job.ranks),
        "SLURM_NTASKS_PER_NODE": str(job.ranks),
        "SLURM_TASKS_PER_NODE": str(job.ranks),
        "SLURM_STEP_NUM_TASKS": str(job.ranks),
        "SLURM_STEP_TASKS_PER_NODE": str(job.ranks),
        "SLURM_NNODES": "1",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_NODELIST": node,
        "SLURM_JOB_NODELIST": node,
        "SLURM_STEP_NODELIST": node,
        "SLURMD_NODENAME": node,
        "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
        "JAX_COORDINATOR_PORT": str(site.coordinator_port),
    }


def _ompi_variables(job: Job, rank: int, site: JobLocation) -> dict[str, str]:
    """Return the variables of Open MPI 4.

    JAX takes the coordinator's host from the URI; nobody listens on the URI's port.
    """
    return {
        "OMPI_COMM_WORLD_SIZE": str(job.ranks),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(job.ranks),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        "OMPI_COMM_WORLD_NODE_RANK": str(rank),
        "OMPI_UNIVERSE_SIZE": str(job.ranks),
        "OMPI_MCA_orte_hnp_uri": f"{site.master_port << 12}.0;tcp://127.0.0.1:{site.coordinator_port}",
        "JAX_COORDINATOR_PORT": str(site.coordinator_port),
    }


_STYLES: dict[Style, Callable[[Job, int, JobLocation], dict[str, str]]] = {
    "default": _default_variables,
    "torchrun": _torchrun_variables,
    "slurm": _slurm_variables,
    "ompi": _ompi_variables,
}
