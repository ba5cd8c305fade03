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
import slurm

PROGRAM = Path(__file__).parent / "programs" / "trainings.py"
RANKS = 2
PATIENCE = 180.0
LAUNCHERS: dict[str, list[str]] = {
    "allranks run": [sys.executable, "-m", "allranks", "run", "-n", str(RANKS)],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)],
}
KINDS = {
    "no workers": (),
    "save alone": (),
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
Preempt = Callable[[int, list[int]], None]


def below(pid: int) -> list[int]:
    """Return a process and its descendants."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        children = " ".join(Path(f"/proc/{pid}/task/{thread}/children").read_text() for thread in threads)
    except (FileNotFoundError, ProcessLookupError):
        return [pid]
    return [pid, *(found for child in children.split() for found in below(int(child)))]


def send(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            continue


SIGNALLED: dict[str, Preempt] = {
    "launcher": lambda launcher, _: send([launcher]),
    "every process": lambda launcher, _: send(below(launcher)),
    "one rank": lambda _, ranks: send(ranks[1:2]),
    "every rank": lambda _, ranks: send(ranks),
}


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


def await_end(pids: set[int]) -> None:
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


def preempt(command: list[str], folder: Path, how: Preempt, environ: Mapping[str, str]) -> tuple[int, int, str]:
    """Run a job until it is preempted; return where it began, its exit code and its output. Nothing of it is left."""
    (folder / "output.txt").unlink(missing_ok=True)
    with started(command, folder, environ) as job:
        ranks, start = await_ranks(job, folder)
        everybody = {*below(job.pid), *(pid for rank in ranks for pid in below(rank))}
        how(job.pid, ranks)
        code = job.wait(PATIENCE)
        await_end(everybody)
        return start, code, (folder / "output.txt").read_text()


def assert_saved_and_resumed(
    command: list[str], folder: Path, how: Preempt, *, code: int | None, environ: Mapping[str, str] = {}
) -> None:
    """Twice in a row: the second begins where the first was saved."""
    before = 0
    for _ in range(2):
        start, ended, out = preempt(command, folder, how, environ)
        assert (start, ended) == (before, ended if code is None else code), out
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


SHORT = {("every process", "2 workers", "allranks run")}
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
@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.needs("torch", *KINDS.get(kind, ())))
        for kind in ("rows", "HF Trainer", "Lightning", "Accelerate")
    ],
)
def test_an_exception_that_comes_of_sigterm_leads_to_a_save(kind: str, launcher: str, tmp_path: Path) -> None:
    """The data set of each rank breaks after some rows. All save the last complete step."""
    command = [*LAUNCHERS[launcher], str(PROGRAM), str(tmp_path), kind]
    with started(command, tmp_path, {"BREAKS": "9"}) as job:
        code = job.wait(PATIENCE)
    out = (tmp_path / "output.txt").read_text()
    assert code == CODES[launcher], out
    [step] = {int(step) for step in re.findall(r"saved step (\d+)", out)}
    assert step == newest(tmp_path / "run") > 3, out
    assert "BrokenPipeError: taken for a consequence of SIGTERM" in out, out


@pytest.mark.soak
@pytest.mark.needs("torch")
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_workers_of_every_start_method(context: str, launcher: str, tmp_path: Path) -> None:
    command = [*LAUNCHERS[launcher], str(PROGRAM), str(tmp_path), "2 workers", context]
    assert_saved_and_resumed(command, tmp_path, SIGNALLED["every process"], code=CODES[launcher])


@pytest.fixture(scope="module")
def slurm_environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if missing := slurm.missing():
        pytest.skip(f"no {', '.join(missing)} here: apt-get install slurm-wlm")
    with slurm.running(tmp_path_factory.mktemp("slurm")) as environ:
        yield environ


UNDER_SLURM = {
    **{f"srun {name}": ["srun", "-n", "1", *command] for name, command in LAUNCHERS.items()},
    "srun": ["srun", "-n", str(RANKS), sys.executable],
}


@pytest.mark.soak
@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", ["no workers", "2 workers", "persistent workers", "our map workers"])
@pytest.mark.parametrize("launcher", UNDER_SLURM)
def test_scancel(launcher: str, kind: str, slurm_environ: dict[str, str], tmp_path: Path) -> None:
    """Slurm sends SIGTERM to every process of the job, and SIGKILL 30 s later. The exit code is that of srun."""

    def scancel(_: int, __: list[int]) -> None:
        environ = {**os.environ, **slurm_environ}
        told = subprocess.run(["squeue", "-h", "-o", "%i"], env=environ, capture_output=True, text=True, check=True)
        subprocess.run(["scancel", *told.stdout.split()], env=environ, check=True)

    command = [*UNDER_SLURM[launcher], str(PROGRAM), str(tmp_path), kind]
    assert_saved_and_resumed(command, tmp_path, scancel, code=None, environ=slurm_environ)
    if launcher == "srun allranks run":
        assert "exit code 143 after" in (tmp_path / "output.txt").read_text()
