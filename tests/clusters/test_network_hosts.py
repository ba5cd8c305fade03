"""The hosts of these tests are what a real cluster has, and the failure of one rank ends a job on all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from network_hosts import Hosts

PROGRAM = Path(__file__).parents[1] / "world" / "endings.py"


def test_hosts_are_apart(hosts: Hosts) -> None:
    """Each has its own name, processes and cable; ssh, Slurm and Open MPI start processes on all of them."""
    assert hosts.run("h0", [*hosts.ssh, "h2", "hostname"]).stdout == "h2\n"
    assert sorted(hosts.run("h1", ["srun", "-N4", "hostname"]).stdout.split()) == list(hosts.names)
    command, environ = hosts.mpirun(4, ["hostname"])
    assert set(hosts.names) <= set(hosts.run("h0", command, env=environ).stdout.split())
    hosts.cut("h2")
    connect = [*hosts.ssh, "-o", "ConnectTimeout=1", "h2", "hostname"]
    assert hosts.run("h0", connect).returncode == 255
    hosts.mend("h2")
    assert hosts.run("h0", connect).stdout == "h2\n"
    sleep = hosts.on("h3", ["sleep", "1000"])
    hosts.power_off("h3")
    assert sleep.wait(10) != 0


@pytest.mark.needs("torch")
def test_exception_of_one_rank_ends_the_job_on_all_hosts(hosts: Hosts, tmp_path: Path) -> None:
    """It is named on every host, with its host and line, and no process is left."""
    (tmp_path / "pids").mkdir()
    job = hosts.run("h0", ["srun", "-N4", sys.executable, PROGRAM, "torch", tmp_path, "raises"])
    assert job.returncode == 1, job.stdout
    named = [line for line in job.stdout.splitlines() if "because rank 1 (host h1) failed at" in line]
    assert len(named) == 3, job.stdout
    assert all("endings.py" in line and "ValueError: bad row" in line for line in named), job.stdout
    assert left_processes(hosts, PROGRAM.name) == {}, job.stdout


def left_processes(hosts: Hosts, pattern: str) -> dict[str, str]:
    """Return the process ids on each host whose command contains the pattern."""
    found = {host: hosts.run(host, ["pgrep", "-f", pattern]).stdout for host in hosts.names}
    return {host: pids for host, pids in found.items() if pids}
