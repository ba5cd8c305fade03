"""``allranks run`` with real processes: how jobs end, and that nothing of them is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.jobs import allranks, is_alive, pids_in, wait_until, write

# Every rank leaves its pid, and that of a child in a session of its own; then rank 1 does what the test is about.
FAMILY = """
import os, pathlib, subprocess, sys, time
rank = int(os.environ["ALLRANKS_RANK"])
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
for pid in (os.getpid(), child.pid):
    pathlib.Path("pids", str(pid)).touch()
while len(os.listdir("pids")) < 2 * int(os.environ["ALLRANKS_SIZE"]):
    time.sleep(0.01)
"""
WAIT = "\ntime.sleep(1000)\n"


def family(folder: Path, then: str = "") -> str:
    (folder / "pids").mkdir()
    return write(folder, FAMILY + then + WAIT)


def assert_gone(folder: Path, ranks: int) -> None:
    pids = pids_in(folder)
    assert len(pids) == 2 * ranks
    wait_until(lambda: not any(map(is_alive, pids)), "processes of the job are left")


def test_a_job_runs_its_ranks_and_returns_0(tmp_path: Path) -> None:
    script = write(
        tmp_path, "import os, sys; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], sys.argv)"
    )
    done = allranks("-n", "3", script, "--steps", "5", cwd=tmp_path)
    assert done.code == 0
    for rank in range(3):
        assert f"rank {rank} of 3 ['train.py', '--steps', '5']" in done.out
    assert "exit code 0 after" in done.out


ENDS = {
    "raises": ("raise ValueError('bad row')", 1, "at train.py:10: ValueError: bad row"),
    "raises in a thread": (
        "import threading; threading.Thread(target=lambda: 1 / 0, name='prefetch').start()",
        1,
        "at train.py:10 in thread 'prefetch': ZeroDivisionError: division by zero",
    ),
    "sys.exit": ("sys.exit(3)", 3, "at train.py:10: left with exit code 3"),
    "SystemExit": ("raise SystemExit('no data')", 1, "left with exit code 1: no data"),
    "killed": ("os.kill(os.getpid(), 9)", 137, "killed by SIGKILL"),
    "terminated": ("os.kill(os.getpid(), 15)", 143, "killed by SIGTERM"),
    "os._exit": ("os._exit(7)", 7, "exit code 7"),
    "os.abort": ("os.abort()", 134, "killed by SIGABRT"),
    "memory": (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29)); bytearray(1 << 34)",
        1,
        "at train.py:10: MemoryError",
    ),
}


@pytest.mark.parametrize("zygote", [True, False], ids=["zygote", "spawn"])
@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_one_rank_is_the_end_of_the_job(tmp_path: Path, end: str, zygote: bool) -> None:
    """With its exit code, its place in the code on top, and no process left, not even a grandchild's."""
    line, code, says = ENDS[end]
    script = family(tmp_path, f"if rank == 1:\n    {line}")
    done = allranks("-n", "3", *([] if zygote else ["--no-zygote"]), script, cwd=tmp_path)
    assert done.code == code
    headline = next(text for text in done.out.splitlines() if text.startswith("first failure: "))
    assert "rank 1 " in headline
    assert says in headline
    assert "ranks 0, 2: stopped by allranks" in done.out
    assert_gone(tmp_path, 3)
