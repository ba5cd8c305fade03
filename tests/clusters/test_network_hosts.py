"""The hosts of these tests have what a real cluster has."""

from __future__ import annotations

from network_hosts import Hosts


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
