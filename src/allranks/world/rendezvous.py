"""Where do the ranks meet, when a launcher that knows nothing of the framework started them?"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Below the ports that JAX's own detections pick from (61440 and up): a job may use both frameworks. A prime number of
# them, so that job numbers that differ by a power of two spread.
_FIRST_PORT, _PORTS = 49152, 8191


def meeting_point(environ: Mapping[str, str], launcher: str, size: int | None, *, backend: str) -> str | None:
    """Return ``host:port``, equal on all ranks; None where it is unknown, or is better found by JAX's own detection.

    ``launcher`` and ``backend`` are the names in ``signs``.
    """
    if size is None:
        return None
    if launcher == "allranks" and backend == "jax":
        return environ.get("ALLRANKS_COORDINATOR")
    if backend == "jax" and "JAX_COORDINATOR_ADDRESS" in environ:
        return environ["JAX_COORDINATOR_ADDRESS"]
    if backend == "jax" and (launcher == "Slurm" or ("OMPI_MCA_orte_hnp_uri" in environ and launcher == "Open MPI")):
        return None
    if "MASTER_ADDR" in environ and "MASTER_PORT" in environ:
        # The torch store itself listens on MASTER_PORT.
        port = int(environ["MASTER_PORT"])
        jax_port = environ.get("JAX_COORDINATOR_PORT") or str(port + 1 if port < 65535 else port - 1)
        return f"{environ['MASTER_ADDR']}:{jax_port if backend == 'jax' else port}"
    if launcher == "Slurm":
        host = first_host(environ.get("SLURM_STEP_NODELIST", ""))
        seed = 31 * int(environ.get("SLURM_JOB_ID", "0")) + int(environ.get("SLURM_STEP_ID", "0"))
        return f"{host}:{_FIRST_PORT + seed % _PORTS}" if host else None
    if launcher == "Open MPI" and environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == str(size):
        job = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid") or "0"
        return f"127.0.0.1:{_FIRST_PORT + int(re.sub(r'[^0-9]', '', job) or 0) % _PORTS}"
    return None


def first_host(nodes: str) -> str:
    """Return the first host of a Slurm node list.

    >>> first_host("gpu[003-007,9],login1"), first_host("a,b")
    ('gpu003', 'a')
    """
    prefix, bracket, rest = nodes.partition("[")
    if "," in prefix or not bracket:
        return nodes.partition(",")[0]
    return prefix + re.split(r"[-,\]]", rest)[0] + rest.partition("]")[2].partition(",")[0]
