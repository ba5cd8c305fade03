"""Signals to the launcher: it ends, or sends them on, and says which; never without a word."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from allranks import agent
from allranks.launch.filters import PeerLimit, without_rank

control_of_rank = agent.load("allranks_agent_control")

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


def test_ranks_that_wait_for_the_launcher_leave_it_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """300 ranks end at once, and the queue of a socket has few places: a rank waits without using its processor."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as launcher:
        launcher.bind(str(tmp_path / "control"))
        monkeypatch.setenv("ALLRANKS_CONTROL", str(tmp_path / "control"))
        monkeypatch.setenv("ALLRANKS_RANK", "0")
        monkeypatch.setattr(control_of_rank, "SEND_SECONDS", 0.3)
        began = time.process_time()
        while control_of_rank.send("joined"):
            pass
        assert time.process_time() - began < 0.2
    assert "cannot send 'joined' to the launcher: timed out" in capfd.readouterr().err


def test_after_ctrl_c_a_line_is_shown_once() -> None:
    """A rank's own repetitions, and lines that wait to be shown with those of others, are shown."""
    limit = PeerLimit()
    trace = [b"Traceback", b"KeyboardInterrupt"]
    assert limit.visible(0, trace) == trace
    limit.show_once()
    assert limit.visible(0, [*trace, b"Traceback"]) == [*trace, b"Traceback"]
    assert limit.visible(1, [b"Traceback", b"other"]) == [b"other"]
    assert limit.visible(2, trace, waiting={b"Traceback"}) == [b"Traceback"]
    assert limit.count() == "2 more lines of [1-2] after Ctrl-C"


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        (b"[rank3]: Traceback", b"Traceback"),
        (b"[rank31]: Traceback", b"[rank31]: Traceback"),
        (b"allranks.errors.Mismatch: rank 3 (host a): x", b"allranks.errors.Mismatch: x"),
        (b"allranks.errors.Mismatch: rank 3: x", b"allranks.errors.Mismatch: x"),
        (b"allranks.errors.Mismatch: rank 4: x", b"allranks.errors.Mismatch: rank 4: x"),
        (b"[rank3]: allranks.errors.Mismatch: rank 3: x", b"allranks.errors.Mismatch: x"),
        (b"[rank3]: allranks.errors.Mismatch: rank 4: x", b"allranks.errors.Mismatch: rank 4: x"),
        (b"[rank4]: allranks.errors.Mismatch: rank 3: x", b"[rank4]: allranks.errors.Mismatch: rank 3: x"),
        (b"[rank", b"[rank"),
    ],
)
def test_only_the_rank_of_the_line_itself_is_removed(line: bytes, rest: bytes) -> None:
    assert without_rank(3, [line]) == [rest]


MANY = """
import os, time
open("up/" + os.environ["ALLRANKS_RANK"], "w").close()
time.sleep(1000)
"""


@pytest.mark.soak
def test_ctrl_c_ends_300_ranks_within_the_grace(tmp_path: Path) -> None:
    """With one traceback, and with the report of each."""
    (tmp_path / "train.py").write_text(MANY)
    (tmp_path / "up").mkdir()
    command = [sys.executable, "-m", "allranks", "run", "-n", "300", "--grace", "60", "train.py"]
    with (
        open(tmp_path / "out", "w") as out,
        subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=subprocess.STDOUT) as launcher,
    ):
        while len(os.listdir(tmp_path / "up")) < 300:
            assert launcher.poll() is None
            time.sleep(0.1)
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait() == 130
    text = (tmp_path / "out").read_text()
    assert text.count("Traceback") == 1
    assert "cannot send" not in text
    assert "was over" not in text
