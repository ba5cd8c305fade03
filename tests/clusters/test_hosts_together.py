"""`allranks run` on four real hosts: one job, which starts, fails and ends on all of them together."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import harness
import pytest
from host_job import PROGRAM, RUN, no_rank_is_left, signal_launcher
from network_hosts import Hosts


@pytest.mark.soak
def test_every_rank_knows_its_place(start: object) -> None:
    job = start("-n", 2, PROGRAM, "end", 0)  # type: ignore[operator]
    assert set(job.codes().values()) == {0}, job.all_text()
    said = re.findall(r"rank (\d) of 8, (\d) of 2 on host (\d), start 0", job.all_text())
    assert sorted(said) == [(str(rank), str(rank % 2), str(rank // 2)) for rank in range(8)]
    assert "8 ranks on 4 hosts (2 each): h0, h1, h2, h3" in job.text("h0")
    assert re.search(r"^\[h2 5\] +rank 5 of 8", job.text("h2"), re.M)


@pytest.mark.parametrize(
    ("what", "code", "says"),
    [
        ("raise", 1, "ValueError: bad row"),
        pytest.param("kill", 137, "killed by SIGKILL", marks=pytest.mark.soak),
        pytest.param("exit", 7, "exit code 7", marks=pytest.mark.soak),
    ],
)
def test_the_failure_of_one_rank_ends_all_hosts_with_its_code(
    start: object, hosts: Hosts, what: str, code: int, says: str
) -> None:
    job = start("-n", 2, PROGRAM, what, 5)  # type: ignore[operator]
    assert set(job.codes().values()) == {code}, job.all_text()
    [first] = job.first_failures()
    assert first.startswith("first failure: rank 5 (host h2) failed"), first
    assert says in first
    no_rank_is_left(hosts, hosts.names)


@pytest.mark.parametrize(
    ("how", "number"),
    [("cut", 2), *[pytest.param(*case, marks=pytest.mark.soak) for case in (("cut", 0), ("power_off", 2))]],
)
def test_a_lost_host_is_named_and_ends_the_others(start: object, hosts: Hosts, how: str, number: int) -> None:
    job = start("-n", 1, "--host-timeout", 2, PROGRAM, "wait", 0)  # type: ignore[operator]
    job.await_text(r"rank \d is up")
    lost = f"h{number}"
    getattr(hosts, how)(lost)
    rest = [name for name in hosts.names if name != lost]
    assert set(job.codes(rest).values()) == {137}, job.all_text()
    [first] = job.first_failures(rest)
    named = f"rank {number} (host {lost}) failed: host {lost} is lost: "
    assert f"{named}its launcher is silent for 2 s" in first
    no_rank_is_left(hosts, rest)
    if how == "cut":  # it ends its ranks by itself
        assert job.codes([lost]) == {lost: 137}, job.all_text()
        assert f"{named}it is cut off" in job.text(lost)
        no_rank_is_left(hosts, [lost])


@pytest.mark.parametrize("victim", ["h0", pytest.param("h3", marks=pytest.mark.soak)])
def test_a_killed_launcher_takes_its_ranks_along_and_ends_the_job(start: object, hosts: Hosts, victim: str) -> None:
    job = start("-n", 1, PROGRAM, "wait", 0)  # type: ignore[operator]
    job.await_text(r"rank \d is up")
    hosts.run(victim, ["pkill", "-KILL", "-f", "--", "--host-rank"])
    rest = [name for name in hosts.names if name != victim]
    assert set(job.codes(rest).values()) == {137}, job.all_text()
    [first] = job.first_failures(rest)
    assert f"(host {victim}) failed: host {victim} is lost: its launcher has ended" in first
    no_rank_is_left(hosts, hosts.names)


@pytest.mark.soak
def test_host_0_that_was_stopped_for_too_long_names_itself(start: object, hosts: Hosts) -> None:
    """The others have given it up, and say the same."""
    job = start("-n", 1, "--host-timeout", 4, PROGRAM, "wait", 0)  # type: ignore[operator]
    job.await_text(r"rank \d is up")
    signal_launcher(hosts, "h0", "STOP")
    assert set(job.codes(["h1", "h2", "h3"]).values()) == {137}, job.all_text()
    signal_launcher(hosts, "h0", "CONT")
    job.launchers["h0"].send_signal(signal.SIGCONT)  # nsenter stops when its child does
    assert job.codes(["h0"]) == {"h0": 137}, job.all_text()
    says = job.first_failures()
    assert {one[: one.index(" is lost")] for one in says} == {"first failure: rank 0 (host h0) failed: host h0"}, (
        job.all_text()
    )
    no_rank_is_left(hosts, hosts.names)


@pytest.mark.soak
def test_a_signal_is_reported_with_its_host(start: object, hosts: Hosts) -> None:
    options = ("--exit-code-on-preempt", 85, "--grace", 10)
    job = start("-n", 1, *options, PROGRAM, "wait", 0, names=("h0", "h1"))  # type: ignore[operator]
    job.await_text(r"rank \d is up")
    signal_launcher(hosts, "h1", "TERM")
    assert set(job.codes().values()) == {85}, job.all_text()
    assert "SIGTERM received (host h1): " in job.text("h0"), job.all_text()
    for name in job.names:
        assert "stopped by SIGTERM (host h1)" in job.text(name), job.all_text()
        assert re.search("^exit code 85", job.text(name), re.M), job.all_text()


@pytest.mark.soak
@pytest.mark.parametrize("name", ["h0", "h1"])
def test_a_signal_while_a_restart_waits_for_a_host_ends_all_hosts(start: object, hosts: Hosts, name: str) -> None:
    options = ("-n", 1, "--host-timeout", 2, "--restarts", 1)
    job = start(*options, PROGRAM, "wait", 0, names=("h0", "h1", "h2"))  # type: ignore[operator]
    job.await_text(r"rank \d is up")
    hosts.power_off("h2")
    job.await_text("waiting for hosts", ["h0"])
    signal_launcher(hosts, name, "TERM")
    rest = ["h0", "h1"]
    assert set(job.codes(rest).values()) == {143}, job.all_text()
    said = f"job stopped by SIGTERM (host {name}) before it was started again"
    assert all(said in job.text(one) for one in rest), job.all_text()


UNEVEN = """\
import os, signal, sys, threading
over = threading.Event()
def leave(*_):
    threading.Timer(4, over.set).start()
signal.signal(signal.SIGTERM, leave)
print("is up", flush=True)
if os.environ["RANK"] == "2" and sys.argv[1] == "after":
    sys.exit()
if sys.argv[1] == "after":
    leave()
over.wait()
"""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("when", "code", "says", "shown"),
    [("after", 0, "after its ranks have ended", "0"), ("during", 143, "while the job ends", "lost")],
)
def test_a_host_that_is_lost_at_the_end_is_named_and_changes_nothing(
    start: object, hosts: Hosts, tmp_path: Path, when: str, code: int, says: str, shown: str
) -> None:
    """Rank 2 ends first, and its host is lost; or the job ends by SIGTERM, and the host is lost meanwhile."""
    script = tmp_path / "train.py"
    script.write_text(UNEVEN)
    job = start("-n", 1, "--host-timeout", 2, script, when, names=("h0", "h1", "h2"))  # type: ignore[operator]
    job.await_text("is up")
    if when == "during":
        signal_launcher(hosts, "h0", "TERM")
        job.await_text("SIGTERM received", ["h0"])
    hosts.cut("h2")
    rest = ["h0", "h1"]
    assert set(job.codes(rest).values()) == {code}, job.all_text()
    named = rf"^allranks: host h2 is lost: its launcher is silent for 2 s .*, {says}$"
    assert all(re.search(named, job.text(name), re.M) for name in rest), job.all_text()
    assert re.search(rf"^ +2 +h2 +- +{shown} +- +-$", job.text("h0"), re.M), job.all_text()


@pytest.mark.soak
def test_a_stopped_fork_server_goes_on(start: object, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\n")
    job = start("-n", 1, script, names=("h0", "h1"))  # type: ignore[operator]
    assert set(job.codes().values()) == {0}, job.all_text()


@pytest.mark.soak
def test_a_wrong_key_is_refused_at_once_on_both_sides(start: object, hosts: Hosts) -> None:
    place = ["--hosts", "2", "--coordinator", "h0:29400", "-n", "1", "--host-rank"]
    job = start("-n", 1, "--hosts", 2, PROGRAM, "end", 0, names=("h0",), env={"ALLRANKS_JOB_KEY": "a"})  # type: ignore[operator]
    other = hosts.run("h1", [*map(str, RUN), *place, "1", str(PROGRAM), "end", "0"], env={"ALLRANKS_JOB_KEY": "b"})
    says = "host h1 does not have the key of this job (ALLRANKS_JOB_KEY)"
    assert other.returncode == 2
    assert f"{says}. Set ALLRANKS_JOB_KEY to the same text on all hosts, or on none." in other.stdout
    job.await_text(re.escape(f"allranks: {says}, and is refused"))


@pytest.mark.soak
def test_a_host_that_comes_too_late_does_not_wait(start: object, hosts: Hosts) -> None:
    job = start("-n", 1, "--host-timeout", 2, PROGRAM, "wait", 0, names=("h0", "h1"))  # type: ignore[operator]
    job.await_text(r"rank \d is up")
    place = ["--hosts", "2", "--host-rank", "1", "--coordinator", "h0:29400", "--host-timeout", "2", "-n", "1"]
    late = hosts.run("h2", [*map(str, RUN), *place, str(PROGRAM), "wait", "0"])
    assert late.returncode == 2, late.stdout
    assert "the job of host h0 runs without it, and is not started again" in late.stdout
    signal_launcher(hosts, "h0", "TERM")
    job.codes()


@pytest.mark.soak
def test_hosts_that_wait_look_for_host_0_again(start: object, hosts: Hosts, tmp_path: Path) -> None:
    """Its launcher is killed while the hosts gather, and is started again."""
    job = start("-n", 1, "--hosts", 3, PROGRAM, "end", 0, names=("h0", "h1"))  # type: ignore[operator]
    job.await_text("waiting for hosts", ["h0"])
    signal_launcher(hosts, "h0", "KILL")
    job.codes(["h0"])
    job.await_text(r"host h1 has lost host 0 \(h0\): its launcher has ended", ["h1"])
    job.names, job.logs["h2"] = ("h0", "h1", "h2"), tmp_path / "h2.log"
    for number, name in ((0, "h0"), (2, "h2")):
        place = ["--hosts", "3", "--host-rank", str(number), "--coordinator", "h0:29400", "-n", "1"]
        job.start(name, [*place, str(PROGRAM), "end", "0"])
    assert set(job.codes().values()) == {0}, job.all_text()


@pytest.mark.soak
def test_all_hosts_start_again_together(start: object) -> None:
    job = start("-n", 1, "--restarts", 2, PROGRAM, "restart", 2)  # type: ignore[operator]
    assert set(job.codes().values()) == {0}, job.all_text()
    assert "allranks: restart 1 of 2 after" in job.text("h0")
    assert sorted(re.findall(r"rank (\d) of 4, .*, start (\d)", job.all_text())) == [
        (str(rank), str(restart)) for rank in range(4) for restart in range(2)
    ]


@pytest.mark.soak
def test_the_same_failure_again_and_again_is_not_repeated(start: object) -> None:
    job = start("-n", 1, "--restarts", 9, "--max-no-progress", 2, PROGRAM, "raise", 1, names=("h0", "h1"))  # type: ignore[operator]
    assert set(job.codes().values()) == {1}, job.all_text()
    assert "not started again: 2 starts in a row failed alike, and no step was saved" in job.text("h0")
    assert job.all_text().count(", start 1") == 2


@pytest.mark.soak
def test_fewer_hosts_go_on(start: object, hosts: Hosts) -> None:
    """With MIN:MAX hosts, a restart takes those that are there."""
    options = ["-n", "1", "--hosts", "2:3", "--host-timeout", "2", "--restarts", "1", str(PROGRAM), "restart", "9"]
    job = start(*options, names=("h0", "h1", "h2"))  # type: ignore[operator]
    job.await_text(r"rank \d is up")
    hosts.power_off("h1")
    rest = ["h0", "h2"]
    assert set(job.codes(rest).values()) == {0}, job.all_text()
    assert "2 ranks on 2 hosts (1 each): h0, h2" in job.text("h0")


def test_a_host_with_another_program_is_named_before_anything_starts(start: object, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.read_text())
    job = start("-n", 1, script, "end", 0, names=("h0",))  # type: ignore[operator]
    assert job.codes() == {"h0": 0}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "train.py").write_text("print('other')")
    place = ["--hosts", "2", "--coordinator", "h0:29400", "-n", "1"]
    job.names = ("h0", "h1")
    job.logs["h1"] = tmp_path / "h1.log"
    job.start("h0", [*place, "--host-rank", "0", str(script), "end", "0"])
    job.start("h1", [*place, "--host-rank", "1", str(tmp_path / "other" / "train.py"), "end", "0"])
    assert job.codes() == {"h0": 2, "h1": 2}, job.all_text()
    says = "host h1: the script differs: expected train.py (SHA-256"
    assert all(says in job.text(name) for name in job.names), job.all_text()


@pytest.mark.soak
def test_the_guard_on_one_host_alone_is_refused(start: object, tmp_path: Path) -> None:
    job = start("-n", 1, "--hosts", 2, "--guard", PROGRAM, "end", 0, names=("h0",))  # type: ignore[operator]
    job.names, job.logs["h1"] = ("h0", "h1"), tmp_path / "h1.log"
    place = ["--hosts", "2", "--coordinator", "h0:29400", "-n", "1", "--host-rank", "1"]
    job.start("h1", [*place, str(PROGRAM), "end", "0"])
    assert job.codes() == {"h0": 2, "h1": 2}, job.all_text()
    says = "host h1: the guard of collectives (--guard) differs: expected on (as on host h0), found off"
    assert all(says in job.text(name) for name in job.names), job.all_text()


@pytest.mark.parametrize(
    ("number", "place", "says"),
    [
        pytest.param(
            *(1, ["--coordinator", "nowhere:29400"], "the name nowhere has no address here"), marks=pytest.mark.soak
        ),
        (1, ["--coordinator", "h0:29400"], "port 29400: Connection refused"),
        (0, ["--coordinator", "h0:29400"], "1 of 2 hosts are there; missing: host 1"),
    ],
)
def test_a_host_that_waits_in_vain_says_for_whom(hosts: Hosts, number: int, place: list[str], says: str) -> None:
    options = ["--hosts", "2", "--host-rank", str(number), *place, "--join-timeout", "1", "-n", "1"]
    ended = hosts.run("h1" if number else "h0", [*map(str, RUN), *options, str(PROGRAM), "end", "0"])
    assert ended.returncode == 2
    assert says in ended.stdout


def test_slurm_says_all_that_is_needed(hosts: Hosts) -> None:
    """One process a node is a launcher; several would each be a job of their own, and are refused."""
    run = [*map(str, RUN), "-n", "1", str(PROGRAM), "raise", "1"]
    job = hosts.run("h0", ["srun", "-N4", "--ntasks-per-node=1", *run])
    assert job.returncode == 1, job.stdout
    assert "4 ranks on 4 hosts (1 each): h0, h1, h2, h3; Slurm says node 0 of 4" in job.stdout
    named = r"^first failure: rank 1 \(host h1\) failed at .*plain_rank.py:\d+: ValueError: bad row"
    assert len(re.findall(named, job.stdout, re.M)) == 4, job.stdout
    refused = hosts.run("h0", ["srun", "-N2", "-n4", *run])
    assert refused.returncode == 2
    assert "each of them is an allranks run: expected one on each host, found several" in refused.stdout


@pytest.mark.soak
@pytest.mark.parametrize("framework", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("jax", "torch")])
def test_the_guard_compares_the_ranks_of_all_hosts(start: object, tmp_path: Path, framework: str) -> None:
    """Rank 2, on the other host, makes another call."""
    script = tmp_path / "train.py"
    script.write_text(OTHER_CALL[framework])
    for what, code in (("ok", 0), ("differs", 1)):
        job = start("-n", 2, "--guard", script, what, names=("h0", "h1"), env={"JAX_PLATFORMS": "cpu"})  # type: ignore[operator]
        assert set(job.codes().values()) == {code}, job.all_text()
        says = r"lockstep 'all ranks': call \d+ differs: .*ranks 0-1, 3: .*rank 2: "
        assert all(bool(re.search(says, job.text(name))) is (code == 1) for name in job.names), job.all_text()


OTHER_CALL = {
    "torch": """\
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(20):
    if step == 10 and dist.get_rank() == 2 and sys.argv[1] == "differs":
        dist.broadcast(torch.ones(3), 0)
    else:
        dist.all_reduce(torch.ones(3))
""",
    "jax": """\
import sys, jax, numpy as np
jax.distributed.initialize()
from jax.experimental import multihost_utils
for step in range(20):
    multihost_utils.process_allgather(np.ones(3))
    if step == 10 and jax.process_index() == 2 and sys.argv[1] == "differs":
        multihost_utils.process_allgather(np.ones(5))
""",
}


DEMO = Path(__file__).parents[2] / "examples" / "jax_fsdp_lm"
EVERY = 20


def demo_options(folder: Path, record: Path) -> list[object]:
    """Return the options of a small run of the demo, which writes the loss of each step to ``record``."""
    flags = ["--demo", "--checkpoint", folder / "run", "--losses", record, "--save-every", EVERY]
    small = ["--size", 48, "--layers", 1, "--heads", 2, "--seq-len", 32, "--batch-size", 48]
    return [*flags, "--steps", 3 * EVERY, *small]


def losses_of(record: Path) -> dict[int, float]:
    """Return the loss of each step; of a step that was made twice, the last."""
    return {line["step"]: line["loss"] for line in map(json.loads, record.read_text().splitlines())}


def differ(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Return the largest relative difference of the losses at the same steps."""
    both = before.keys() & after.keys()
    assert len(both) >= EVERY - 2
    return max(abs(after[step] - before[step]) / before[step] for step in both)


@pytest.mark.soak
@pytest.mark.needs("jax")
@pytest.mark.parametrize("doomed", ["2", "2,3"])
def test_four_hosts_train_a_host_is_killed_in_a_save_and_three_hosts_go_on(
    start: object, tmp_path: Path, doomed: str
) -> None:
    """The demo over hosts: eight ranks on four, then six on three, which lose what the eight lost at the same steps.

    One rank of a host is killed, or all of them.
    """
    found = {}
    for names, program in ((["h0", "h1", "h2", "h3"], "doomed.py"), (["h0", "h1", "h2"], "train.py")):
        record = tmp_path / f"{program}.jsonl"
        env = {"DOOMED_STEP": str(2 * EVERY), "DOOMED_RANKS": doomed}
        job = start("-n", 2, "-d", 1, DEMO / program, *demo_options(tmp_path, record), names=names, env=env)  # type: ignore[operator]
        assert set(job.codes().values()) == {137 if program == "doomed.py" else 0}, job.all_text()
        found[program] = losses_of(record)
        if program == "doomed.py":
            assert re.search(r"rank [23] \(host h1\) failed", "".join(job.first_failures())), job.all_text()
    before, after = found.values()
    assert min(after) == EVERY + 1
    assert differ(before, after) < 1e-4


@pytest.mark.soak
@pytest.mark.needs("jax")
def test_a_host_that_loses_power_in_a_save_is_left_out_by_the_restart(
    start: object, hosts: Hosts, tmp_path: Path
) -> None:
    """The restart takes the three hosts that are there, and goes on at the last whole step."""
    record = tmp_path / "losses.jsonl"
    options = ("-n", 2, "-d", 1, "--hosts", "3:4", "--restarts", 1, "--host-timeout", 3)
    job = start(*options, DEMO / "train.py", *demo_options(tmp_path, record))  # type: ignore[operator]
    deadline = time.monotonic() + harness.PATIENCE
    while not [*(tmp_path / "run").glob(f"*{2 * EVERY}*")]:
        assert time.monotonic() < deadline, job.all_text()
        time.sleep(0.002)
    hosts.power_off("h3")
    before = losses_of(record)
    rest = ["h0", "h1", "h2"]
    assert set(job.codes(rest).values()) == {0}, job.all_text()
    assert "host h3 is lost: " in job.text("h0"), job.all_text()
    assert "6 ranks on 3 hosts (2 each): h0, h1, h2" in job.text("h0"), job.all_text()
    [resumed] = set(re.findall(r"goes on from step (\d+)", job.text("h0"))) - {"0"}
    assert int(resumed) in (EVERY, 2 * EVERY)
    after = losses_of(record)
    assert max(after) == 3 * EVERY
    assert max(abs(after[step] - before[step]) / before[step] for step in before) < 1e-4
