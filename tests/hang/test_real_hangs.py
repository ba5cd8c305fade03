"""Real ranks of which one is stuck: one report names it, its place and what to do; the job ends, and starts again."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import harness
import pytest

PROGRAM = Path(__file__).parent / "programs" / "stalls.py"
LIMIT, RANKS = 2.0, 3
# What the report says of rank 1 for each fault.
SAYS = {
    "stopped": r"for rank 1 \(host \S+\), since \d+ s: stopped",
    "fifo": r"for rank 1 .*: at \S*stalls\.py:\d+ in fifo, in openat\('\S+pipe'\)",
    "lock": r"for rank 1 .*: at \S*stalls\.py:\d+ in lock",
    "deadlock": r"for rank 1 .*: at \S*stalls\.py:\d+ in deadlock[\s\S]*thread Thread-\d+ \(other\):\s*\n.*in other",
    "holds_the_gil": r"for rank 1 .*: frozen[\s\S]*stack of rank 1:\s*\n[\s\S]*in holds_the_gil",
    "polls": r"for rank 1 .*: at \S*stalls\.py:\d+ in polls",
    "data": r"for rank 1 .*: at \S*stalls\.py:\d+ in data",
    "network": r"for rank 1 .*: at \S*stalls\.py:\d+ in network, in recvfrom\('socket:",
    "meets_alone": r"for rank 1 .*: exchange barrier 'only here' at \S*stalls\.py:\d+ in meets_alone",
    "worker": r"for rank 1 .*: data .* at \S*stalls\.py:\d+ in worker",
    "raises": r"first failure: rank 1 .* failed at \S*stalls\.py:\d+: ValueError: bad row",
    "killed": r"first failure: rank 1 .* SIGKILL",
    "leaves": r"first failure: rank 1 .* left early",
}
FRAMEWORKS = [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("jax", "torch")]


def run(framework: str, fault: str, folder: Path, *options: str, rank: int = 1) -> harness.Job:
    """One job under ``allranks run``, to its end."""
    words = [sys.executable, "-m", "allranks", "run", "-n", str(RANKS), "--hang-after", str(LIMIT), "--timeout", "60"]
    command = [*words, *options, str(PROGRAM), framework, fault, str(rank), str(folder)]
    return harness.run_commands([(command, harness.clean_environ())])


@pytest.mark.needs("jax")
def test_a_hang_is_reported_ended_and_the_job_starts_again(tmp_path: Path) -> None:
    """One report: who waits for whom, the line, the system call, what to do, which timeout governs, equal stacks once;
    then all ranks end, and the restart goes through."""
    job = run("jax", "fifo", tmp_path, "--on-hang", "end", "--restarts", "2")
    out = job.ranks[0].text
    assert job.codes == [0], job
    assert len(re.findall(r"allranks: HANG: ranks 0, 2 wait", out)) == 1, job
    assert re.search(SAYS["fifo"], out), job
    assert "what to do: Check its line" in out, job
    assert "--xla_cpu_collective_timeout_seconds" in out, job
    assert "stack of ranks 0, 2:" in out, job
    assert re.search(r"allranks: restart 1 of 2 after \S+ s: rank 1 .* HANG: ranks 0, 2 wait for rank 1", out), job
    assert "has done 5 steps, restart 1" in out, job
    assert re.search(r"exit code 0 after \S+ s, 1 restart$", out.strip()), job


@pytest.mark.needs("torch")
def test_where_the_store_is_stopped_the_others_say_so(tmp_path: Path) -> None:
    """Rank 0 serves the store of all: nobody can be asked, and one of the others names it all the same."""
    job = run("torch", "stopped", tmp_path, "--on-hang", "end", rank=0)
    out = job.ranks[0].text
    assert job.codes == [75], job
    assert re.search(r"HANG: rank 0 \(host \S+\), which serves the store .* its process is stopped", out), job


@pytest.mark.needs("jax")
def test_without_our_launcher_the_ranks_end_each_other(tmp_path: Path) -> None:
    """A rank that holds Python's lock cannot end itself; the others kill it, and all have the same exit code."""
    environ = {"ALLRANKS_HANG_AFTER": str(LIMIT), "ALLRANKS_ON_HANG": "end"}
    job = harness.run(
        RANKS,
        [str(PROGRAM), "jax", "holds_the_gil", "1", str(tmp_path)],
        environ=lambda *place: {**harness.torchrun_environ(*place), **environ},
    )
    assert job.codes == [75, -signal.SIGKILL, 75], job
    told = [rank.err for rank in job.ranks if "allranks: HANG: ranks 0, 2 wait" in rank.err]
    assert len(told) == 1, job
    assert re.search(SAYS["holds_the_gil"], told[0]), job


@pytest.mark.soak
@pytest.mark.needs("torch")
def test_a_stuck_worker_is_reported_and_waited_for(tmp_path: Path) -> None:
    """The policy ``warn``: one report, and the job goes on until its time is over."""
    job = run("torch", "worker", tmp_path, "--timeout", "15")
    out = job.ranks[0].text
    assert job.codes == [124], job
    assert re.search(SAYS["worker"], out), job
    assert "what to do: Check the data" in out, job
    assert len(re.findall("allranks: HANG: ranks", out)) == 1, job


@pytest.mark.soak
@pytest.mark.needs("torch")
def test_a_slow_rank_is_named_while_the_job_goes_on(tmp_path: Path) -> None:
    job = run("torch", "slow", tmp_path)
    assert job.codes == [0], job
    assert re.search(r"SLOW: rank 1 \(host \S+\) is busy \S+ s a step, [12]\.\d+ times as long", job.ranks[0].text), job
    assert "HANG" not in job.ranks[0].text, job


@pytest.mark.soak
@pytest.mark.parametrize("turn", range(int(os.environ.get("HANG_TURNS", "20"))))
@pytest.mark.parametrize("fault", SAYS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_fault_is_named_every_time(framework: str, fault: str, turn: int, tmp_path: Path) -> None:
    """The right rank, at its line."""
    del turn
    if fault == "worker":
        pytest.importorskip("torch")
    job = run(framework, fault, tmp_path, "--on-hang", "end")
    assert job.codes[0] not in (0, 124), job
    assert re.search(SAYS[fault], job.ranks[0].text), job


@pytest.mark.soak
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_10_000_healthy_steps_give_no_report(framework: str, tmp_path: Path) -> None:
    """On one rank a save of 60 s, and with JAX a compilation of about that, are among them; the limit is 30 s."""
    words = [sys.executable, "-m", "allranks", "run", "-n", "4", "--hang-after", "30", "--on-hang", "end"]
    command = [*words, str(PROGRAM.parent / "healthy.py"), framework, "10000", "60", str(tmp_path / "saved")]
    job = harness.run_commands([(command, harness.clean_environ())], patience=600)
    out = job.ranks[0].text
    assert job.codes == [0], job
    assert "HANG" not in out, job
    took = [float(seconds) for seconds in re.findall(r"took (\d+) s", out)]
    assert len(took) == (2 if framework == "jax" else 1), job
    assert min(took) > 30, job


@contextlib.contextmanager
def started(framework: str, fault: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "allranks", "run", "-n", str(RANKS), "--timeout", "100", str(PROGRAM)]
    with (folder / "output").open("wb") as out:
        process = subprocess.Popen(
            [*command, framework, fault, "1", str(folder)], stdout=out, stderr=out, env=harness.clean_environ()
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def doctor(*words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "allranks", "doctor", *words]
    done = subprocess.run(command, env=harness.clean_environ(), capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def asked(folder: Path, *words: str) -> tuple[int, str]:
    """Ask the doctor about the job of this test: others may run here."""
    deadline = time.monotonic() + harness.PATIENCE
    while not (folder / "stalled").exists():
        assert time.monotonic() < deadline, (folder / "output").read_text()
        time.sleep(0.05)
    code, said = doctor("job", *words)
    if found := re.search(rf"(\w+) \([^;]*{re.escape(str(folder))}", said):
        return doctor(found[1], *words)
    return code, said


@pytest.mark.parametrize(
    ("framework", "fault"),
    [
        # Ranks that answer are there below, too.
        pytest.param("jax", "polls", marks=[pytest.mark.needs("jax"), pytest.mark.soak]),
        pytest.param("torch", "stopped", marks=pytest.mark.needs("torch")),
    ],
)
def test_the_doctor_sees_a_running_job(framework: str, fault: str, tmp_path: Path) -> None:
    """From another process: a row a rank, its line, and the stacks; a rank that is stopped is known from outside."""
    with started(framework, fault, tmp_path):
        code, said = asked(tmp_path, "--json")
        document = json.loads(said)
        rank = document["ranks"][1]
        assert [one["rank"] for one in document["ranks"]] == list(range(RANKS))
        assert str(tmp_path) in document["command"]
        if fault == "polls":
            assert rank["beat"]["where"].endswith("in polls")
        else:
            assert (code, rank["verdict"], rank["answers"]) == (1, "stopped", False)
            assert document["culprits"] == [1]
            assert [one["answers"] for one in document["ranks"]] == [True, False, True]
            assert "stalls.py" in document["ranks"][0]["beat"]["where"]
        _, text = asked(tmp_path, "--stacks")
        assert re.search(r"^rank +host +step +in +at +for +slow +verdict$", text, re.MULTILINE), text
        assert "stack of ranks 0, 2:" in text, text


def test_the_doctor_says_when_there_is_nobody() -> None:
    code, said = doctor("no-such-job")
    assert code == 2
    assert "no job called no-such-job runs here" in said
