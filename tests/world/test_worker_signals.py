"""What a worker process of a rank does when SIGTERM comes, to it or to all, and when its rank ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import harness
import pytest

PATIENCE = 60.0
RANK = """\
import multiprocessing, os, pathlib, signal, subprocess, sys, time
from allranks.world import sigterm, workers

def work(folder, number):
    child = subprocess.Popen(["sleep", "1000"])  # it has no handler of ours
    file = pathlib.Path(folder, f"{number}.tmp")
    file.write_text(f"{os.getpid()} {child.pid}")
    file.rename(file.with_suffix(""))
    while True:
        time.sleep(1000)

def start(number):
    made = context.Process(target=work, args=(folder, number), daemon=True)
    made.start()
    while not os.path.exists(f"{folder}/{number}"):
        time.sleep(0.01)
    return made, int(open(f"{folder}/{number}").read().split()[1])

if __name__ == "__main__":
    method, folder = sys.argv[1:]
    context = multiprocessing.get_context(method)
    workers.prepare_workers()
    alone, child = start(0)
    os.kill(alone.pid, signal.SIGTERM)
    alone.join(60)
    print("a rank that does not answer:", alone.exitcode, flush=True)
    os.kill(child, signal.SIGKILL)

    sigterm.handle_with(lambda: None, who="a test")
    ended, child = start(1)
    for pid in (ended.pid, child):
        os.kill(pid, signal.SIGTERM)
    ended.join(0.5)
    print("a rank that answers:", ended.exitcode, flush=True)
    ended.terminate()
    ended.join(60)
    print("terminated:", ended.exitcode, flush=True)
    left, _ = start(2)
    os.kill(left.pid, signal.SIGTERM)
    time.sleep(0.5)
    print("ready", flush=True)
    time.sleep(1000)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_end(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while is_alive(pid):
        assert time.monotonic() < deadline, pid
        time.sleep(0.01)


@pytest.mark.parametrize("method", ["fork", "spawn", pytest.param("forkserver", marks=pytest.mark.soak)])
def test_a_worker_outlives_a_sigterm_but_not_its_rank(method: str, tmp_path: Path) -> None:
    """It dies where the rank does not answer, where the rank terminates it, and when the rank is killed."""
    program = tmp_path / "rank.py"
    program.write_text(RANK)
    rank = subprocess.Popen(
        [sys.executable, str(program), method, str(tmp_path)],
        env=harness.clean_environ(), stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert rank.stdout is not None
    try:
        told = [rank.stdout.readline().strip() for _ in range(4)]
        assert told == ["a rank that does not answer: -15", "a rank that answers: None", "terminated: -15", "ready"]
        await_end(int((tmp_path / "1").read_text().split()[1]))
        worker = int((tmp_path / "2").read_text().split()[0])
        assert is_alive(worker)
        rank.kill()
        await_end(worker)
    finally:
        os.killpg(rank.pid, signal.SIGKILL)
        rank.stdout.close()
        rank.wait()
