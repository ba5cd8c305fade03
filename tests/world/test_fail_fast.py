"""``allranks.init()`` alone: whatever ends one rank ends the whole job, under launchers that know nothing of us."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import harness
import pytest
import slurm

PROGRAM = Path(__file__).parent / "endings.py"
RANKS = 3
# Seconds. Ours take about two, JAX's without us 300; the machine may be busy.
SOON = 30.0
SAYS = {
    "raises": r"because rank 1 \(host \S+\) failed at \S*endings.py:\d+: ValueError: bad row",
    "leaves": r"(failed after|before:) rank 1 has left \(exit code 0\)",
    "killed": "",  # the launcher may be as fast as we are
}
CASES = list(itertools.product(("torchrun", "srun", "mpirun"), ("jax", "torch"), SAYS))
TELLING = [
    ("torchrun", "jax", "raises"),
    ("mpirun", "jax", "killed"),
]


@dataclass(frozen=True)
class Launcher:
    """What stands before the program, and in its environment."""

    command: tuple[str, ...]
    environ: Mapping[str, str]


@pytest.fixture(scope="module")
def torchrun() -> Launcher:
    pytest.importorskip("torch")
    here = ("--local-addr", "127.0.0.1", "--master-addr", "127.0.0.1", "--master-port", str(harness.free_port()))
    return Launcher((sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), *here), {})


@pytest.fixture(scope="module")
def srun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    if missing := slurm.missing():
        pytest.skip(f"no {', '.join(missing)} here: apt-get install slurm-wlm")
    with slurm.running(tmp_path_factory.mktemp("slurm")) as environ:
        yield Launcher(("srun", "-n", str(RANKS), sys.executable), environ)


@pytest.fixture(scope="module")
def mpirun() -> Launcher:
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun here: apt-get install openmpi-bin")
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return Launcher(("mpirun", "--oversubscribe", "-n", str(RANKS), sys.executable), as_root)


@pytest.mark.parametrize(
    ("launcher", "framework", "ending"),
    [
        pytest.param(*case, marks=[pytest.mark.needs(case[1]), *([] if case in TELLING else [pytest.mark.soak])])
        for case in CASES
    ],
)
def test_the_end_of_one_rank_is_the_end_of_the_job(
    launcher: str, framework: str, ending: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """With an exit code that is not 0, the words for it, and no process left."""
    started_by = request.getfixturevalue(launcher)
    with killed_in_the_end(tmp_path):
        job = run(started_by, framework, tmp_path, ending)
        assert len(pids_in(tmp_path)) == RANKS, job
        assert job.codes[0], job
        assert since_the_end(tmp_path) < SOON, job
        assert re.search(SAYS[ending], job.ranks[0].out + job.ranks[0].err), job
        deadline = time.monotonic() + SOON
        while any(map(is_alive, pids_in(tmp_path))):
            assert time.monotonic() < deadline, job
            time.sleep(0.05)


@pytest.mark.soak
@pytest.mark.needs("jax")
@pytest.mark.parametrize("ending", ["raises", "leaves"])
@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_without_us_jax_hangs(launcher: str, ending: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """For 300 s; a part of it is enough here."""
    started_by = request.getfixturevalue(launcher)
    with killed_in_the_end(tmp_path):
        job = run(started_by, "plain-jax", tmp_path, ending, patience=30)
        assert since_the_end(tmp_path) > 10, job
        assert job.codes == [None], job


def run(launcher: Launcher, framework: str, folder: Path, ending: str, *, patience: float = 120) -> harness.Job:
    (folder / "pids").mkdir()
    command = [*launcher.command, str(PROGRAM), framework, str(folder), ending]
    job = harness.run_commands([(command, harness.clean_environ(launcher.environ))], patience=patience)
    assert (folder / "end").exists(), job
    print(f"{' '.join(command)}: over {since_the_end(folder):.1f} s after the end of rank 1, with {job.codes}")
    return job


@contextlib.contextmanager
def killed_in_the_end(folder: Path) -> Iterator[None]:
    """Whatever a launcher left, also in a session of its own."""
    try:
        yield
    finally:
        for pid in pids_in(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def since_the_end(folder: Path) -> float:
    return time.time() - float((folder / "end").read_text())


def pids_in(folder: Path) -> list[int]:
    return [int(path.name) for path in (folder / "pids").iterdir()]


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.soak  # tests/clusters has hosts
@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("ending", "says"),
    [
        ("killed", r"because rank 1 \(host \S+\) failed: its process ended without a message"),
        pytest.param(
            "leaves", r"because rank 1 \(host \S+\) failed: left early \(exit code 0\)", marks=pytest.mark.soak
        ),
        pytest.param(
            "raises", r"because rank 1 \(host \S+\) failed at \S+: ValueError: bad row", marks=pytest.mark.soak
        ),
    ],
)
def test_a_rank_alone_on_its_machine_is_named_by_its_peers(ending: str, says: str) -> None:
    """Nobody on its machine saw its process end: rank 0's connection to it has closed, or it has reported its end."""
    job = harness.run(RANKS, [str(PROGRAM.with_name("far_apart.py")), ending])
    assert all(code for rank, code in enumerate(job.codes) if rank != 1 or ending != "leaves"), job
    assert any(re.search(says, job.ranks[rank].err) for rank in (0, 2)), job
