"""Where ranks meet that no framework's launcher started: the same place, worked out by each rank for itself."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.world.processes import is_of_this_host
from allranks.world.rendezvous_address import first_host, rendezvous_address

SLURM = {"SLURM_JOB_ID": "1234", "SLURM_STEP_ID": "2", "SLURM_STEP_NODELIST": "gpu[07-09]"}

MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
    "OMPI_MCA_ess_base_jobid": "3076",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
MPI6 = {**MPI, "OMPI_MCA_orte_hnp_uri": "1314521088.0;tcp6://[fe80::b9b:ac5d,2620:10d::2]:43370"}


@pytest.mark.parametrize(
    ("environ", "launcher", "backend", "where"),
    [
        ({"ALLRANKS_COORDINATOR": "h:1", "MASTER_ADDR": "h", "MASTER_PORT": "9"}, "allranks", "jax", "h:1"),
        ({"ALLRANKS_COORDINATOR": "h:1", "MASTER_ADDR": "h", "MASTER_PORT": "9"}, "allranks", "torch", "h:9"),
        ({"MASTER_ADDR": "h", "MASTER_PORT": "29500"}, "torchrun", "torch", "h:29500"),
        ({"MASTER_ADDR": "h", "MASTER_PORT": "29500"}, "torchrun", "jax", "h:29501"),
        ({"MASTER_ADDR": "h", "MASTER_PORT": "65535"}, "torchrun", "jax", "h:65534"),
        ({"MASTER_ADDR": "h", "MASTER_PORT": "9", "JAX_COORDINATOR_PORT": "7"}, "torchrun", "jax", "h:7"),
        ({"MASTER_ADDR": "h", "MASTER_PORT": "9", "JAX_COORDINATOR_ADDRESS": "c:3"}, "torchrun", "jax", "c:3"),
        (SLURM, "Slurm", "jax", f"gpu07:{49152 + (31 * 1234 + 2) % 8191}"),
        ({**SLURM, "MASTER_ADDR": "h", "MASTER_PORT": "9", "JAX_COORDINATOR_PORT": "7"}, "Slurm", "jax", "gpu07:7"),
        (SLURM, "Slurm", "torch", f"gpu07:{49152 + (31 * 1234 + 2) % 8191}"),
        ({**SLURM, "MASTER_ADDR": "h", "MASTER_PORT": "9"}, "Slurm", "torch", "h:9"),
        ({**SLURM, "JAX_COORDINATOR_PORT": "7"}, "Slurm", "torch", f"gpu07:{49152 + (31 * 1234 + 2) % 8191}"),
        ({"OMPI_MCA_orte_hnp_uri": "1.0;tcp://h:3"}, "Open MPI", "jax", None),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, "Open MPI", "jax", "127.0.0.1:49152"),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "x@5"}, "Open MPI", "torch", "127.0.0.1:49157"),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "Open MPI", "torch", None),
        ({**MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, "Open MPI", "torch", "127.0.0.1:52228"),
        (MPI, "Open MPI", "torch", "10.96.0.1:52228"),
        (MPI6, "Open MPI", "torch", "[fe80::b9b:ac5d]:52228"),
        ({}, "PMI", "torch", None),
    ],
)
def test_four_ranks_meet(environ: Mapping[str, str], launcher: str, backend: str, where: str | None) -> None:
    """None: JAX's own detection knows better, or nobody knows."""
    assert rendezvous_address(environ, launcher, 4, backend=backend) == where


@given(st.integers(0, 2**31), st.integers(0, 2**16))
@settings(deadline=None)
def test_every_job_of_slurm_meets_at_a_port_of_its_own(job: int, step: int) -> None:
    """Below the ports that JAX's detections pick from; the next job and the next step take another one."""

    def port(job: int, step: int) -> int:
        environ = {**SLURM, "SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step)}
        jax, torch = (rendezvous_address(environ, "Slurm", 4, backend=backend) for backend in ("jax", "torch"))
        assert jax == torch
        return int((torch or "").removeprefix("gpu07:"))

    assert 49152 <= port(job, step) < 61440
    assert len({port(job, step), port(job + 1, step), port(job, step + 1)}) == 3


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("", ""), ("a", "a"), ("a,b[1-2]", "a"), ("n[3,5-9]", "n3"), ("n[003-7]x,z", "n003x"), ("r1-n[08],b", "r1-n08")],
)
def test_the_first_host_of_a_list(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


def test_rank_0_knows_whether_mpirun_runs_on_its_host() -> None:
    assert is_of_this_host("127.0.0.1:1")
    assert not is_of_this_host("192.0.2.1:1")
