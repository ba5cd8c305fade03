"""Faults: how they are read from a command line, at which calls they strike, and what is wrong after them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from allranks.failure import Failure
from allranks.launch.result import JobResult
from allranks.rehearse.fault import USUAL, Fault, FaultError, FileFault, chosen, parse
from allranks.rehearse.judge import faults
from allranks.rehearse.trace import Event, Frame, Trace


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("kill", Fault("kill")),
        ("kill:rank=2@step=5", Fault("kill", 2, 5)),
        ("kill:save", Fault("kill", at_save=True)),
        ("kill:rank=0@path=ckpt/*", Fault("kill", 0, path="ckpt/*", at_save=True)),
        ("preempt:@step=5", Fault("preempt", step=5)),
        ("preempt:step=5,rank=1", Fault("preempt", 1, 5)),
        ("raise:rank=0", Fault("raise", 0)),
        ("hang:step=3", Fault("hang", step=3)),
        ("enospc:path=ckpt/*", Fault("enospc", path="ckpt/*")),
        ("delay:300ms,path=*.json", Fault("delay", path="*.json", seconds=0.3)),
        ("delay:2s", Fault("delay", seconds=2.0)),
    ],
)
def test_a_fault_is_read_and_written(text: str, fault: Fault) -> None:
    assert parse(text, size=4) == fault
    assert parse(str(fault)) == fault


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("explode", "'explode' is no fault; there are kill, preempt"),
        ("kill:rank=4", "there is no rank 4; ranks are 0 to 3"),
        ("kill:rank=x", "expected a number of a rank, found 'rank=x'"),
        ("kill:step=0", "expected a number from 1, found 'step=0'"),
        ("kill:save@step=3", "give a step or files, not both"),
        ("preempt:path=a", "preempt takes rank, step; found 'path=a'"),
        ("enospc:2s", "enospc takes rank, path; found '2s'"),
        ("hang:soon", "expected rank=, step=, path=, save or a time (300ms), found 'soon'"),
    ],
)
def test_a_wrong_fault_is_refused(text: str, words: str) -> None:
    with pytest.raises(FaultError) as error:
        parse(text, size=4)
    assert text in str(error.value)
    assert words in str(error.value)


def test_no_fault_on_the_command_line_means_the_usual_ones() -> None:
    assert chosen([], size=2) == USUAL
    assert chosen(["hang"], size=2) == (Fault("hang"),)


@pytest.mark.parametrize(
    ("fault", "calls", "strikes"),
    [
        ("kill:save", [(0, "create", "a.pt", 4), (0, "create", "b.pt", 4), (0, "create", "a.pt", 8)], [2]),
        ("kill:rank=1@save", [(0, "create", "a.pt", 4), (0, "create", "a.pt", 8)], []),
        ("kill:path=x/*", [(1, "write", "x/1", 0), (1, "read", "x/1", 1), (1, "write", "y", 1)], []),
        ("kill:path=x/*", [(1, "write", "x/1", 0), (1, "write", "x/1", 1)], [1]),
        ("enospc", [(0, "create", "a.pt", 1), (1, "mkdir", "a.ckpt", 1), (1, "read", "a.pt", 1)], [0, 1]),
        ("enospc", [(1, "create", "log", 1)], []),
        ("delay:path=*.json", [(0, "read", "deep/a.json", 0), (0, "read", "a.txt", 0)], [0]),
        ("kill:step=3", [(1, "create", "a.pt", 4)], []),
    ],
)  # fmt: skip
def test_a_fault_of_files_strikes_at_these_calls(fault: str, calls: list, strikes: list[int]) -> None:
    decide = FileFault(parse(fault), 2, "/p")
    answers = [decide.strikes(rank, what, f"/p/{path}", step) for rank, what, path, step in calls]
    assert [number for number, answer in enumerate(answers) if answer] == strikes


LINE = (Frame("/p/train.py", 9, "<module>"),)
GOOD = JobResult(0, ())


def file(rank: int, time: float, operation: str, path: str, step: int) -> Event:
    return Event(rank, "file", 0, time, step, LINE, data={"operation": operation, "paths": [path], "existed": True})


def struck(action: str, time: float = 2.0, step: int = 5) -> Event:
    return Event(0, "fault", 0, time, step, LINE, data={"action": action, "steps": step})


def judged(fault: str, events: list[Event], *, ended: JobResult = GOOD, restarted: JobResult = GOOD) -> list[str]:
    baseline = Trace(2, (file(0, 1.0, "create", "/p/a.pt", 2),))
    found = faults.judge(parse(fault), baseline, (Trace(2, tuple(events)), ended), (Trace(2, ()), restarted))
    return [f"{one.code} {one.message}" for one in found]


def test_a_swallowed_error_is_found() -> None:
    [found] = judged("raise", [struck("raise")])
    assert found.startswith("AR021 the job ends with exit code 0 although rank 0 met an error that was raised in it at")
    assert judged("raise", [struck("raise")], ended=JobResult(1, ())) == []


def test_a_full_disk_that_nobody_shows_is_found_unless_a_later_save_succeeds() -> None:
    failed = file(0, 2.0, "create", "/p/a.pt", 5)
    assert judged("enospc", [failed, struck("enospc")])[0].startswith("AR021")
    assert judged("enospc", [failed, struck("enospc"), file(0, 3.0, "create", "/tmp/b.pt", 6)]) == []


def test_a_preemption_without_a_save_is_found() -> None:
    before, after = file(0, 1.0, "create", "/p/a.pt", 2), file(1, 3.0, "rename", "/p/a.pt", 5)
    [found] = judged("preempt", [before, struck("preempt")])
    assert found.startswith("AR022 no checkpoint is written after SIGTERM at step 5; the newest one is of step 2, and")
    assert judged("preempt", [before, struck("preempt"), after]) == []
    assert judged("preempt", [file(0, 1.0, "create", "/p/a.pt", 5), struck("preempt")]) == []
    assert judged("preempt", [file(0, 3.0, "exists", "/p/a.pt", 5), struck("preempt")]) != []


def test_a_restart_that_fails_is_found_at_its_line() -> None:
    failure = Failure(1, "vm", "EOFError: no more", 3.0, "/p/train.py:4")
    [found] = judged("kill:save", [struck("kill")], ended=JobResult(1, ()), restarted=JobResult(1, (), failure))
    assert found == "AR023 after the fault kill:save the same command fails on rank 1: EOFError: no more"


def test_a_fault_that_did_not_strike_is_said() -> None:
    assert judged("raise", []) == []
    said = faults.unseen(parse("raise:step=90"), Trace(2, ()))
    assert said == "the fault raise:step=90 did not strike: no rank of it took so many steps"
    said = faults.unseen(parse("kill:save"), Trace(2, ()))
    assert said == "the fault kill:save did not strike: no rank of it changed a checkpoint twice"


def test_the_command_says_what_a_fault_may_be(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    options = ["-n", "2", "--fault", "explode", "train.py"]
    command = [sys.executable, "-m", "allranks", "rehearse", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "--fault 'explode': 'explode' is no fault; there are kill, preempt" in done.stderr
