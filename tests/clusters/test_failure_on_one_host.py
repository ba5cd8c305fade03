"""``allranks.init()`` on four hosts with one rank each: the first failure is named, and ends the job on all hosts."""

from __future__ import annotations

import itertools
import re
import sys
import time
from pathlib import Path

import pytest
from network_hosts import Hosts

PROGRAM = Path(__file__).parents[1] / "world" / "endings.py"
SAYS = {
    "raises": r" at \S*endings.py:\d+: ValueError: bad row",
    "killed": r": its process ended without a message: killed, or crashed",
}
CASES = list(itertools.product(("srun", "srun -K", "mpirun"), ("jax", "torch"), SAYS, (0, 1)))
# A rank killed alone on its host; and the rank whose end makes JAX abort all others.
TELLING = [("srun", "torch", "killed", 1), ("srun", "jax", "killed", 0)]


@pytest.mark.parametrize(
    ("launcher", "framework", "ending", "rank"),
    [
        pytest.param(*case, marks=[pytest.mark.needs(case[1]), *([] if case in TELLING else [pytest.mark.soak])])
        for case in CASES
    ],
)
def test_every_host_names_the_rank_that_failed_first(
    launcher: str, framework: str, ending: str, rank: int, hosts: Hosts, tmp_path: Path
) -> None:
    """And no process is left. Without the connections between hosts, a rank that is killed is named after 5 s only."""
    (tmp_path / "pids").mkdir()
    argv, environ = [sys.executable, str(PROGRAM), framework, str(tmp_path), ending, str(rank)], {}
    command = [*launcher.split(), "-N4", *argv]
    if launcher == "mpirun":
        command, environ = hosts.mpirun(4, argv)
    job = hosts.run("h0", command, env=environ)
    assert job.returncode, job.stdout
    named = re.findall(rf"because rank {rank} \(host h{rank}\) failed{SAYS[ending]}", job.stdout)
    # With -K, Slurm itself may end a rank before it has printed the line.
    assert (1 if launcher == "srun -K" else 3) <= len(named) <= 3, job.stdout
    assert "killed by SIGTERM" not in job.stdout, job.stdout
    assert [host for host in hosts.names if hosts.run(host, ["pgrep", "-f", PROGRAM.name]).stdout] == [], job.stdout


WATCH = """
import sys, time
import allranks
from allranks.world import peer_connections, sentinel
peer_connections.REPORT_AFTER, peer_connections.GIVE_UP_AFTER = 3.0, 6.0
sentinel.GIVE_UP_AFTER = 6.0
world = allranks.init(sys.argv[1])
print("joined", flush=True)
time.sleep(100)
"""


@pytest.mark.soak
@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize("host", ["h0", "h2"])
def test_a_host_that_is_cut_off_is_named_and_ends_the_job(
    host: str, framework: str, hosts: Hosts, tmp_path: Path
) -> None:
    """Without us, JAX aborts after 91 s without naming a host, and torch waits for half an hour."""
    ranks, logs = [], [tmp_path / name for name in hosts.names]
    for rank, name in enumerate(hosts.names):
        environ = {"RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": "0", "MASTER_ADDR": "h0", "MASTER_PORT": "29400"}
        with logs[rank].open("wb") as log:
            ranks.append(hosts.on(name, [sys.executable, "-c", WATCH, framework], env=environ, stdout=log, stderr=log))
    while not all(b"joined" in log.read_bytes() for log in logs):
        assert all(one.poll() is None for one in ranks), [log.read_text() for log in logs]
        time.sleep(0.1)
    hosts.cut(host)
    assert [one.wait(60) for one in ranks] == [1] * 4
    text = "".join(log.read_text() for log in logs)
    others = [log.read_text() for log in logs if log.name != host]
    assert re.search(rf"host {host} (\(ranks? \d\) has not answered|is cut off)", text), text
    assert all(f"(host {host}) failed: its host has not answered" in one for one in others), text


ADD = """
import sys
import allranks
world = allranks.init("jax")
print("sum", sum(world.all_gather(int(sys.argv[1]))), flush=True)
"""


@pytest.mark.soak
@pytest.mark.needs("jax")
def test_two_steps_of_one_allocation_are_two_worlds(hosts: Hosts) -> None:
    """JAX's own detection takes one port for all steps of a job."""
    step = f'srun --overlap -N4 "{sys.executable}" -c "$0"'
    script = f"{step} 1 & {step} 10 & wait"
    job = hosts.run("h0", ["salloc", "-N4", "bash", "-c", script, ADD], timeout=120)
    assert sorted(re.findall(r"sum \d+", job.stdout)) == ["sum 4"] * 4 + ["sum 40"] * 4, job.stdout
