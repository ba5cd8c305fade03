"""Signals to the launcher: it ends, or sends them on, and says which; never without a word."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

HANDLES = """
import os, signal, subprocess, sys
rank, child = os.environ["ALLRANKS_RANK"], subprocess.Popen(["sleep", "600"])
def answer(number, _):
    state = "lives" if child.poll() is None else "has ended"
    print(f"rank {rank} got {signal.Signals(number).name}: child {state}", flush=True)
    if number == signal.SIGTERM:
        sys.exit(3)
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
    signal.signal(number, answer)
print(f"rank {rank} is ready", flush=True)
while True:
    signal.pause()
"""
DEFAULT = """
import os, signal
print("rank", os.environ["ALLRANKS_RANK"], "is ready", flush=True)
signal.pause()
"""


@contextmanager
def launched(folder: Path, program: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """Start a job of two ranks whose output can be read, with that of the launcher; kill it at the end."""
    (folder / "train.py").write_text(program)
    command = [sys.executable, "-m", "allranks", "run", "-n", "2", *options]
    command += ["train.py"] if "--" not in options else [sys.executable, "train.py"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as launcher:
        assert launcher.stdout is not None
        try:
            yield launcher, launcher.stdout
        finally:
            launcher.kill()


def read_until(output: IO[str], *texts: str) -> None:
    """Read lines until each of these texts has been in one."""
    missing = {*texts}
    for line in output:
        missing = {text for text in missing if text not in line}
        if not missing:
            return
    pytest.fail(f"the job has ended without {missing}")


def of_both(text: str) -> tuple[str, str]:
    return f"rank 0 {text}", f"rank 1 {text}"


@pytest.mark.parametrize("how", [(), ("--",)], ids=["script", "command"])
def test_signals_for_programs_are_sent_on_to_the_ranks(how: tuple[str, ...], tmp_path: Path) -> None:
    """As srun and mpirun do; not to what the ranks have started. A signal that ends the job is a SIGTERM for ranks."""
    with launched(tmp_path, HANDLES, *how) as (launcher, output):
        read_until(output, *of_both("is ready"))
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            launcher.send_signal(number)
            read_until(
                output, f"{number.name} received: sent on to ranks 0-1", *of_both(f"got {number.name}: child lives")
            )
        launcher.send_signal(signal.SIGQUIT)
        read_until(output, "SIGQUIT received: stopping ranks 0-1", *of_both("got SIGTERM"), "job stopped by SIGQUIT")
        assert launcher.wait() == 128 + signal.SIGQUIT


@pytest.mark.soak
def test_ranks_that_do_not_handle_a_signal_end_and_the_report_says_so(tmp_path: Path) -> None:
    with launched(tmp_path, DEFAULT) as (launcher, output):
        read_until(output, *of_both("is ready"))
        launcher.send_signal(signal.SIGUSR1)
        read_until(output, "SIGUSR1 received: sent on to ranks 0-1", "first failure: rank", "killed by SIGUSR1")
        assert launcher.wait() == 128 + signal.SIGUSR1


def test_signals_before_the_ranks_start(tmp_path: Path) -> None:
    """The launcher goes on at SIGUSR1, and ends with a line at SIGQUIT."""
    (tmp_path / "end.py").write_text(BEFORE)
    done = subprocess.run([sys.executable, "end.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stderr == "".join(f"allranks: {name} received: no rank runs.\n" for name in ("SIGUSR1", "SIGQUIT"))
    assert done.returncode == 128 + signal.SIGQUIT


BEFORE = """
import os, signal, sys
from allranks.cli import main, run

def start(_):
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGQUIT)

run.main = start
sys.exit(main.main(["run", "-n", "2", "train.py"]))
"""
