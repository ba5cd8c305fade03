"""SIGTERM to any part of a job, with any kind of worker: one step is saved by all, and the job goes on from there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import harness
import pytest

PROGRAM = Path(__file__).parent / "programs" / "trainings.py"
RANKS = 2
PATIENCE = 180.0
LAUNCHERS: dict[str, list[str]] = {
    "allranks run": [sys.executable, "-m", "allranks", "run", "-n", str(RANKS)],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)],
}
KINDS = {
    "no workers": (),
    "2 workers": (),
    "persistent workers": (),
    "our map workers": (),
    "a pool": (),
    "HF Trainer": ("transformers", "accelerate"),
    "Lightning": ("lightning",),
    "Accelerate": ("accelerate",),
}
# torchrun ends with 1 whatever its ranks end with; 143 under it is the code of each rank.
CODES = {"allranks run": 143, "torchrun": 1}
Targets = Callable[[int, list[int]], list[int]]


def below(pid: int) -> list[int]:
    """Return a process and its descendants."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        children = " ".join(Path(f"/proc/{pid}/task/{thread}/children").read_text() for thread in threads)
    except (FileNotFoundError, ProcessLookupError):
        return [pid]
    return [pid, *(found for child in children.split() for found in below(int(child)))]


SIGNALLED: dict[str, Targets] = {
    "launcher": lambda launcher, _: [launcher],
    "every process": lambda launcher, _: below(launcher),
    "one rank": lambda _, ranks: ranks[1:2],
    "every rank": lambda _, ranks: ranks,
}


def send(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            continue


@contextmanager
def started(command: list[str], folder: Path, environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "output.txt").open("wb") as out:
        job = subprocess.Popen(
            command, cwd=folder, env=harness.clean_environ(environ), stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield job
    finally:
        for pid in below(job.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        job.wait()


def await_ranks(job: subprocess.Popen[bytes], folder: Path) -> tuple[list[int], int]:
    """Wait until all ranks have done three steps; return their pids, and the step from which they began."""
    files = [folder / f"ready-{rank}" for rank in range(RANKS)]
    deadline = time.monotonic() + PATIENCE
    while not all(file.exists() for file in files):
        assert job.poll() is None, (folder / "output.txt").read_text()
        assert time.monotonic() < deadline, (folder / "output.txt").read_text()
        time.sleep(0.02)
    told = [tuple(map(int, file.read_text().split())) for file in files]
    for file in files:
        file.unlink()
    starts = {start for _, start in told}
    assert len(starts) == 1, told
    return [pid for pid, _ in told], starts.pop()


def await_end(pids: list[int]) -> None:
    """Wait until none of these processes lives."""
    deadline = time.monotonic() + PATIENCE
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, [pid for pid in pids if is_alive(pid)]
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def preempt(command: list[str], folder: Path, targets: Targets, environ: Mapping[str, str]) -> tuple[int, int, str]:
    """Run a job until it is preempted; return where it began, its exit code and its output. Nothing of it is left."""
    (folder / "output.txt").unlink(missing_ok=True)
    with started(command, folder, environ) as job:
        ranks, start = await_ranks(job, folder)
        everybody = below(job.pid)
        send(targets(job.pid, ranks))
        code = job.wait(PATIENCE)
        await_end([pid for pid in everybody if pid not in below(os.getpid())])
        return start, code, (folder / "output.txt").read_text()


def assert_saved_and_resumed(command: list[str], folder: Path, targets: Targets, *, code: int) -> None:
    """Twice in a row: the second begins where the first was saved."""
    before = 0
    for _ in range(2):
        start, ended, out = preempt(command, folder, targets, {})
        assert (start, ended) == (before, code), out
        steps = {int(step) for step in re.findall(r"saved step (\d+)", out)}
        assert len(steps) <= 1, out
        assert "nothing was saved" not in out, out
        before = newest(folder / "run")
        assert before > start, out
        assert not steps or steps == {before}, out


def newest(run: Path) -> int:
    """Return the newest step that is saved, by whichever library."""
    if (run / "last.ckpt").exists():
        run = run / "last.ckpt"
    return max((int(one.name.rpartition("-")[2]) for one in run.glob("*-*") if one.name[-1].isdigit()), default=0)


SHORT = {
    ("every process", "2 workers", "allranks run"),
    ("launcher", "2 workers", "torchrun"),
}
CELLS = [
    pytest.param(
        signalled,
        kind,
        launcher,
        marks=[
            pytest.mark.needs("torch", *needs),
            *([] if (signalled, kind, launcher) in SHORT else [pytest.mark.soak]),
        ],
    )
    for launcher in LAUNCHERS
    for kind, needs in KINDS.items()
    for signalled in SIGNALLED
]


@pytest.mark.parametrize(("signalled", "kind", "launcher"), CELLS)
def test_all_ranks_save_one_step_and_go_on_from_there(signalled: str, kind: str, launcher: str, tmp_path: Path) -> None:
    command = [*LAUNCHERS[launcher], str(PROGRAM), str(tmp_path), kind]
    assert_saved_and_resumed(command, tmp_path, SIGNALLED[signalled], code=CODES[launcher])


@pytest.mark.soak
@pytest.mark.needs("torch")
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_workers_of_every_start_method(context: str, launcher: str, tmp_path: Path) -> None:
    command = [*LAUNCHERS[launcher], str(PROGRAM), str(tmp_path), "2 workers", context]
    assert_saved_and_resumed(command, tmp_path, SIGNALLED["every process"], code=CODES[launcher])
