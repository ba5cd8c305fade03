"""Compute the address at which the ranks join, from a launcher's variables. Every rank computes the same one."""

from __future__ import annotations

import re
from collections.abc import Mapping

from allranks.engine_variables import hosts_of_node_list, mpi_job, mpirun_host

# Below the ports that JAX's own detections pick from (61440 and up): a job may use both frameworks. A prime number of
# them, so that job numbers that differ by a power of two spread.
_FIRST_PORT, _PORTS = 49152, 8191


def rendezvous_address(environ: Mapping[str, str], launcher: str, size: int | None, *, backend: str) -> str | None:
    """Return the rendezvous ``host:port``, equal on all ranks.

    Return None if it is unknown, or if JAX detects it better. ``launcher`` and ``backend`` are the names in `Decision`.
    """
    if size is None:
        return None
    if launcher == "allranks" and backend == "jax":
        return environ.get("ALLRANKS_COORDINATOR")
    if backend == "jax" and "JAX_COORDINATOR_ADDRESS" in environ:
        return environ["JAX_COORDINATOR_ADDRESS"]
    if backend == "jax" and launcher == "Open MPI" and "OMPI_MCA_orte_hnp_uri" in environ:
        return None
    if backend == "jax" and launcher == "Slurm":  # JAX's own detection takes one port for all steps of a job
        return _slurm_address(environ, port=environ.get("JAX_COORDINATOR_PORT", ""))
    if "MASTER_ADDR" in environ and "MASTER_PORT" in environ:
        # The torch store itself listens on MASTER_PORT.
        port = int(environ["MASTER_PORT"])
        jax_port = environ.get("JAX_COORDINATOR_PORT") or str(port + 1 if port < 65535 else port - 1)
        return f"{environ['MASTER_ADDR']}:{jax_port if backend == 'jax' else port}"
    if launcher == "Slurm":
        return _slurm_address(environ)
    return _mpi_address(environ, size) if launcher == "Open MPI" else None


def _slurm_address(environ: Mapping[str, str], *, port: str = "") -> str | None:
    """Return the address of a Slurm step: its first host, and a port that no other step of a recent job has."""
    host = first_host(environ.get("SLURM_STEP_NODELIST", ""))
    seed = 31 * int(environ.get("SLURM_JOB_ID", "0")) + int(environ.get("SLURM_STEP_ID", "0"))
    return f"{host}:{port or _FIRST_PORT + seed % _PORTS}" if host else None


def _mpi_address(environ: Mapping[str, str], size: int) -> str | None:
    """Return the address of a job of Open MPI: this host if it has all ranks, else the host on which mpirun runs.

    JAX's own detection takes that host too. By default rank 0 is there; if it is not, it raises.
    """
    port = _FIRST_PORT + int(re.sub(r"[^0-9]", "", mpi_job(environ)) or 0) % _PORTS
    if environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == str(size):
        return f"127.0.0.1:{port}"
    host = mpirun_host(environ)
    return None if host is None else f"{host}:{port}"


def first_host(nodes: str) -> str:
    """Return the first host of a Slurm node list.

    >>> first_host("gpu[003-007,9],login1"), first_host("a,b")
    ('gpu003', 'a')
    """
    return next(iter(hosts_of_node_list(nodes)), "")
