"""SIGTERM on any rank, at a bad moment: all ranks save the same step, and leave with 143; or the code is another."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import harness
import numpy as np
import pytest

from allranks.checkpoint import inventory
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.storage.detect import open_storage
from allranks.world.detect import single_world

PROGRAM = Path(__file__).parent / "programs" / "preempted.py"


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "moment",
    [
        "in the write of a save",
        pytest.param("right after a save", marks=pytest.mark.soak),
        pytest.param("before a meeting", marks=pytest.mark.soak),
        pytest.param("on all ranks", marks=pytest.mark.soak),
    ],
)
def test_all_ranks_save_the_same_step_and_leave(moment: str, tmp_path: Path) -> None:
    """Exactly one more save, whole, of the state at that step; and the next job goes on from there."""
    job = harness.run(3, [str(PROGRAM), str(tmp_path), moment])
    assert job.codes == [143] * 3, job
    ckpt = Checkpointer(tmp_path, single_world(), read_only=True)
    steps = ckpt.steps()
    assert list(steps[:-1]) == list(range(3, steps[-1], 3))
    assert {inventory.load_manifest(ckpt._storage, step).world_size for step in steps} == {3}
    assert len(list(tmp_path.glob("checkpoint-*"))) == len(steps)
    restored = ckpt.restore({"weights": np.zeros(1000, np.float32)})
    assert restored is not None
    assert (restored[0]["weights"] == restored[1]).all()
    ckpt.close()


SEVERAL = """\
import os, signal, sys, time
import numpy as np
import allranks
state, often, seldom = {"w": np.zeros(2)}, None, None
world = allranks.init("single")
often, seldom, other = (allranks.Checkpointer(f"{sys.argv[1]}/{name}", world) for name in ("often", "seldom", "other"))
for step in range(1, 100):
    state["w"] += 1
    time.sleep(0.02)
    if step == 7:
        os.kill(os.getpid(), signal.SIGTERM)
    often.maybe_save(step, state)
    if step % 5 == 0:
        seldom.maybe_save(step, state)
    other.maybe_save(step, state)
"""


def test_all_checkpointers_of_a_program_save_before_it_leaves(tmp_path: Path) -> None:
    """Each at its own next call, or, where that does not come in time, what it saw last."""
    done = subprocess.run([sys.executable, "-c", SEVERAL, str(tmp_path)], env=harness.clean_environ(), timeout=60)
    assert done.returncode == 143
    steps = {name: inventory.complete_steps(open_storage(tmp_path / name)) for name in ("often", "seldom", "other")}
    assert len(steps["often"]) == len(steps["other"]) == 1
    assert steps["often"] == steps["other"]
    assert steps["often"][0] >= 7
    assert steps["seldom"] == (5 * (steps["often"][0] // 5),)


SAVE_ALONE = """\
import os, signal, sys, time
import numpy as np
import allranks
ckpt = allranks.Checkpointer(sys.argv[1], allranks.init("single"))
for step in range(3, 100, 3):
    if step == 9:
        os.kill(os.getpid(), signal.SIGTERM)
        while not ckpt._member.notices.is_leaving:
            time.sleep(0.01)
    ckpt.save(step, {"w": np.zeros(2)})
"""


def test_a_program_that_calls_save_alone_leaves_after_its_next_save(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SAVE_ALONE, str(tmp_path)],
        env=harness.clean_environ(),
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, inventory.complete_steps(open_storage(tmp_path))) == (143, (3, 6, 9)), done.stderr
    assert done.stderr.count("allranks: saved step 9 and left (SIGTERM)") == 1


ENDED = Path(__file__).parent / "programs" / "ended.py"


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("how", "code", "saved"),
    [
        ("with, between steps", 143, [5]),
        ("with, within a step", 1, []),
        pytest.param("plain, between steps", 143, [5], marks=pytest.mark.soak),
        pytest.param("plain, at different steps", 1, [], marks=pytest.mark.soak),
        pytest.param("plain, save fails", 1, [], marks=pytest.mark.soak),
        pytest.param("plain, no SIGTERM", 1, [], marks=pytest.mark.soak),
    ],
)
def test_an_exception_that_comes_of_sigterm_leads_to_a_save(
    how: str, code: int, saved: list[int], tmp_path: Path
) -> None:
    """Of the last complete step, by all ranks. Where they are at different steps, or one is within a step that may have
    changed its state, nothing is saved, and the exit code says so."""
    job = harness.run(2, [str(ENDED), str(tmp_path), how])
    assert job.codes == [code] * 2, job
    assert list(inventory.complete_steps(open_storage(tmp_path))) == saved
    assert ("nothing was saved" in str(job)) == (code == 1 and "no SIGTERM" not in how), job


@pytest.mark.soak
@pytest.mark.needs("torch")
@pytest.mark.parametrize(("how", "code"), [("with a Checkpointer", 1), ("without", 143)])
def test_sigterm_ends_a_rank_whose_store_cannot_be_reached(how: str, code: int, tmp_path: Path) -> None:
    """The rank that serves it is stopped."""
    job = harness.run(2, [str(ENDED), str(tmp_path), f"stopped, {how}"], patience=40.0)
    assert job.codes == [None, code], job
    assert job.ranks[1].seconds < 35
    assert ("nothing was saved" in job.ranks[1].err) == (code == 1), job


EVALUATION = """\
import os, time
import numpy as np
import allranks
world = allranks.init("single")
ckpt = allranks.Checkpointer("run", world)
ckpt.save(3, {"w": np.zeros(2)}, block=True)
ckpt.maybe_save(4, {"w": np.zeros(2)})
time.sleep(1.2)
ckpt.maybe_save(5, {"w": np.zeros(2)})
open("ready", "w").close()
time.sleep(1000)  # an evaluation
"""


def test_where_no_call_comes_in_time_the_job_says_so(tmp_path: Path) -> None:
    """Before a SIGTERM, that the grace is short; after half of it, where the rank is; at the end, what is lost."""
    (tmp_path / "train.py").write_text(EVALUATION)
    command = [sys.executable, "-m", "allranks", "run", "-n", "1", "--grace", "1", "train.py"]
    with (tmp_path / "out").open("w") as out:
        job = subprocess.Popen(command, cwd=tmp_path, env=harness.clean_environ(), stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + harness.PATIENCE
        while not (tmp_path / "ready").exists():
            assert time.monotonic() < deadline, (tmp_path / "out").read_text()
            time.sleep(0.01)
        job.terminate()
        code = job.wait(harness.PATIENCE)
    finally:
        job.kill()
        job.wait()
    told = (tmp_path / "out").read_text()
    assert code == 137, told
    assert "1 s passed between two calls of maybe_save, and after a SIGTERM the job has 1 s" in told
    assert "rank 0 did not come to the next maybe_save: rank 0 at train.py:11 in <module>" in told
    assert "the grace of 1 s is over: killing rank 0" in told
    assert "job stopped by SIGTERM; nothing was saved since step 3: rank 0 was killed when the grace" in told


OWN_HANDLER = """\
import signal, allranks
def mine(*_): pass
signal.signal(signal.SIGTERM, mine)
allranks.Checkpointer("run", allranks.init("single")).close()
"""


def test_a_handler_of_the_program_keeps_sigterm_and_that_is_said(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", OWN_HANDLER], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "SIGTERM leads to no save: the program's own handler mine has it" in done.stderr
    assert 'ckpt.request("leave", "SIGTERM")' in done.stderr
