"""A hang of a job on several hosts: host 0 reports it, the other hosts name it, and all take it back."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from host_job import PROGRAM, RUN
from network_hosts import Hosts


@pytest.mark.soak
def test_at_the_time_limit_each_host_shows_its_ranks(start: object) -> None:
    job = start("-n", 2, "--timeout", 3, PROGRAM, "wait", 0, names=("h0", "h1"))  # type: ignore[operator]
    assert set(job.codes().values()) == {124}, job.all_text()
    for name, ranks in (("h0", "0-1"), ("h1", "2-3")):
        assert "where each rank of this host is:" in job.text(name), job.all_text()
        assert re.search(rf"allranks: +{ranks} +unknown +Python", job.text(name)), job.all_text()
        assert not re.search(r"unknown +- ", job.text(name)), job.all_text()


@pytest.mark.soak
@pytest.mark.needs("jax")
def test_the_time_limit_names_the_hang_on_all_hosts(start: object, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HANG)
    options = ("-n", 2, "--hang-after", 4, "--timeout", 20)
    job = start(*options, script, names=("h0", "h1", "h2"), env={"JAX_PLATFORMS": "cpu"})  # type: ignore[operator]
    assert set(job.codes().values()) == {124}, job.all_text()
    named = r"^job stopped at the time limit of 20 s; reported before: HANG: ranks 0-4 wait for rank 5 \(host h2\)"
    assert all(re.search(named, job.text(name), re.M) for name in job.names), job.all_text()
    assert re.search(r"^allranks: +5 +stuck", job.text("h2"), re.M), job.all_text()
    assert re.search(r"^allranks: +2-3 +waiting", job.text("h1"), re.M), job.all_text()


@pytest.mark.soak
@pytest.mark.needs("jax")
def test_a_hang_on_another_host_is_named_in_a_script_that_does_not_import_us(hosts: Hosts, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HANG)
    run = [*map(str, RUN), "-n", "2", "--hang-after", "4", "--on-hang", "end", str(script)]
    job = hosts.run("h0", ["srun", "-N4", "--ntasks-per-node=1", *run], env={"JAX_PLATFORMS": "cpu"})
    assert job.returncode == 75, job.stdout
    named = r"^first failure: rank 5 \(host h2\) failed at .*train.py:9: HANG: ranks 0-4, 6-7 wait for rank 5"
    assert len(re.findall(named, job.stdout, re.M)) == 4, job.stdout


@pytest.mark.soak
@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize(
    "framework", ["none", *[pytest.param(name, marks=pytest.mark.needs(name)) for name in ("jax", "torch")]]
)
def test_a_stopped_rank_is_reported_on_all_hosts_and_taken_back(
    start: object, hosts: Hosts, tmp_path: Path, framework: str, victim: int
) -> None:
    """Rank 0 serves the store of the watches, which cannot talk then. Without a framework there are no watches."""
    script = tmp_path / "train.py"
    script.write_text(STEPS[framework] + STOPS)
    job = start("-n", 1, "--hang-after", 3, script, victim, names=("h0", "h1", "h2"), env={"JAX_PLATFORMS": "cpu"})  # type: ignore[operator]
    named = rf"^allranks: HANG: .*rank {victim} \(host h{victim}\).* stopped"
    job.await_text(re.compile(named, re.M))
    pid = re.findall(r"pid (\d+)", job.text(f"h{victim}"))[0]
    assert "what to do: Continue it (kill -CONT), or end it." in job.text("h0")
    hosts.run(f"h{victim}", ["kill", "-CONT", pid])
    job.await_text(r"HANG: the hang is over: rank \d")
    time.sleep(2)  # a second report would be printed by now
    assert [len(re.findall("allranks: HANG", job.text(name))) for name in job.names] == [2] * 3, job.all_text()


STEPS = {
    "none": "import time\nrank = int(__import__('os').environ['RANK'])\nstep = lambda: time.sleep(0.01)\n",
    "torch": """\
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, step = dist.get_rank(), lambda: dist.all_reduce(torch.ones(3))
""",
    "jax": """\
import jax, numpy as np
jax.distributed.initialize()
from jax.experimental import multihost_utils
rank, step = jax.process_index(), lambda: multihost_utils.process_allgather(np.ones(3))
""",
}
STOPS = """\
import os, signal, sys, time
for number in range(10**9):
    step()
    time.sleep(0.02)
    if number == 100 and rank == int(sys.argv[1]):
        print("pid", os.getpid(), flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.soak
@pytest.mark.needs("torch")
def test_a_slow_host_is_named_by_host_0(start: object) -> None:
    """Rank 1, on the other host, takes longer for each step."""
    program = Path(__file__).parents[1] / "hang" / "programs" / "unmodified.py"
    job = start("-n", 1, "--hang-after", 2, program, "torch", "slow", 450, names=("h0", "h1"))  # type: ignore[operator]
    assert set(job.codes().values()) == {0}, job.all_text()
    assert re.search(r"^SLOW: rank 1 \(host h1\) is late: in collectives it waits \d%", job.text("h0"), re.M)
    assert "SLOW" not in job.text("h1"), job.all_text()


HANG = """\
import threading
import jax, numpy as np
jax.distributed.initialize()
from jax.experimental import multihost_utils
rank = np.array([jax.process_index()])
for step in range(100):
    multihost_utils.process_allgather(rank)
    if step == 3 and rank[0] == 5:
        threading.Event().wait()
"""
