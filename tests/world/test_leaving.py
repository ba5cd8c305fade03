"""SIGTERM on any real rank, at any moment: all ranks leave at the same call, and no failure is made of it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import harness
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "launch"))
from jobs import Started, wait_until

PROGRAM = Path(__file__).parent / "leaving.py"
RANKS = 3
SIGTERM_CODE = 143


def notes(folder: Path) -> list[str]:
    return [(folder / str(rank)).read_text() for rank in range(RANKS)]


@pytest.mark.parametrize(
    ("framework", "what"),
    [
        pytest.param("torch", "one", marks=pytest.mark.needs("torch")),
        # As simulated ranks do (test_together.py); with JAX, the launcher tells all of them below.
        pytest.param("jax", "all", marks=[pytest.mark.needs("jax"), pytest.mark.soak]),
    ],
)
def test_all_ranks_leave_at_the_same_call(framework: str, what: str, tmp_path: Path) -> None:
    """With 143 each, though no launcher of ours is there; nobody calls it a failure."""
    job = harness.run(RANKS, [str(PROGRAM), framework, str(tmp_path), what])
    assert job.codes == [SIGTERM_CODE] * RANKS, job
    assert len(set(notes(tmp_path))) == 1, job
    assert "SIGTERM on rank" in notes(tmp_path)[0]
    assert not any("failed" in rank.err for rank in job.ranks), job


@pytest.mark.needs("jax")
def test_a_stopped_rank_is_named_and_nobody_leaves(tmp_path: Path) -> None:
    """On all ranks, also on the stopped one when it goes on."""
    job = harness.run(RANKS, [str(PROGRAM), "jax", str(tmp_path), "stopped"])
    assert job.codes == [0] * RANKS, job
    assert all(f"rank 2 (host {_host(note)}) gave no sign for 2 s" in note for note in notes(tmp_path)), job
    assert (
        "allranks: rank 1: all ranks were to leave at the same call (SIGTERM on rank 1), but rank 2" in job.ranks[1].err
    )


def _host(note: str) -> str:
    return note.partition("(host ")[2].partition(")")[0]


def start(folder: Path, what: str, *options: str) -> Started:
    return Started("-n", str(RANKS), *options, str(PROGRAM), "jax", str(folder), what, cwd=folder)


def runs(folder: Path) -> bool:
    return all((folder / f"{rank}.runs").exists() for rank in range(RANKS))


@pytest.mark.needs("jax")
@pytest.mark.parametrize("to", ["launcher", pytest.param("rank", marks=pytest.mark.soak)])  # as above, without it
def test_under_the_launcher_a_job_that_saved_and_left_has_not_failed(to: str, tmp_path: Path) -> None:
    """Whether the launcher gets the signal or one of the ranks; the exit code is 143, and it says what was done."""
    with start(tmp_path, "nothing" if to == "launcher" else "one") as job:
        if to == "launcher":
            wait_until(lambda: runs(tmp_path), "the ranks do not run")
            job.send(signal.SIGTERM)
        code = job.end()
        assert code == SIGTERM_CODE, job.out
        assert len(set(notes(tmp_path))) == 1, job.out
        call = notes(tmp_path)[0].partition(" ")[0]
        assert f"saved step {call} and left{'' if to == 'launcher' else ' (SIGTERM on rank'}" in job.out
        assert to == "rank" or "SIGTERM on rank" not in job.out
        assert "failure" not in job.out
        assert "consequences" not in job.out


EARLY = """\
import os, sys, time
import allranks
from jax.experimental import multihost_utils
world = allranks.init("jax")
for step in range(1, 1000):
    if "asks" in sys.argv and multihost_utils.reached_preemption_sync_point(step):
        sys.exit(print("asked JAX, and was told"))
    if step == 2 and "ALLRANKS_CONTROL" in os.environ:
        open(f"{world.rank}.runs", "w").close()
    time.sleep(0.02)
ckpt = allranks.Checkpointer("run", world)
"""


@pytest.mark.needs("jax")
@pytest.mark.parametrize("words", [(), pytest.param(("asks",), marks=pytest.mark.soak)], ids=["early", "asks JAX"])
def test_sigterm_is_not_swallowed_by_jax(words: tuple[str, ...], tmp_path: Path) -> None:
    """Before there is a Checkpointer the job ends at once, and says so; who asks JAX whether to save hears of it."""
    (tmp_path / "train.py").write_text(EARLY)
    with Started("-n", "2", "--grace", "3600", "train.py", *words, cwd=tmp_path) as job:
        wait_until(lambda: all((tmp_path / f"{rank}.runs").exists() for rank in range(2)), "the ranks do not run")
        job.send(signal.SIGTERM)
        code = job.end()
        assert ("asked JAX, and was told" in job.out) == bool(words), job.out
        assert "job stopped by SIGTERM" in job.out
        early = "nothing was saved: no Checkpointer was made yet" in job.out
        assert (early, code) == ((False, 143) if words else (True, 1)), job.out


@pytest.mark.soak
@pytest.mark.needs("jax")
def test_without_our_launcher_an_early_sigterm_says_so_too(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        EARLY.replace("time.sleep", "step == 9 and os.kill(os.getpid(), 15); time.sleep")
    )
    job = harness.run(2, [str(tmp_path / "train.py")])
    assert job.codes == [1, 1], job
    assert "nothing was saved: no Checkpointer was made yet" in job.ranks[0].err


@pytest.mark.needs("jax")
def test_where_a_rank_has_failed_sigterm_ends_the_others_at_once(tmp_path: Path) -> None:
    """They have nobody to save with: no vote is called, and the grace for saving is not waited for."""
    with start(tmp_path, "fails", "--grace", "3600") as job:
        assert job.end() == 1, job.out
        assert "ValueError: bad row" in job.out
        assert "told to leave" not in job.out
    assert not (tmp_path / "0").exists()
