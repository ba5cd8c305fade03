"""Every way in which a rank ends or stands still: the right rank is named, with its line and its exit code.

`make test` runs a sample; `make soak` all of it, as often as ENDS_RUNS says (once), beside ENDS_LOAD busy processes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from jobs import allranks

PROGRAM = Path(__file__).parent / "programs" / "ways_to_end.py"
LINES = PROGRAM.read_text().splitlines()
RUNS, LOAD = int(os.environ.get("ENDS_RUNS", "1")), int(os.environ.get("ENDS_LOAD", "0"))
HANG_AFTER, HANG_CODE = "6", 75


@dataclass(frozen=True)
class Way:
    """``says`` is in the headline; ``has_place``: its line is. ``torch_only``: JAX has no such end.

    Gloo aborts on a mismatch of sizes between two ranks; of more, some wait.
    """

    code: int
    says: str
    has_place: bool = True
    culprit: int = 1
    torch_only: bool = False
    ranks: int = 3


ENDS = {
    "raises": Way(1, "ValueError: bad row"),
    "thread": Way(1, "in thread 'reader': OSError: disk gone"),
    "exit_code": Way(3, "left with exit code 3"),
    "exit_text": Way(1, "left with exit code 1: no data"),
    "caught_exit": Way(1, "left with exit code 1 after ValueError: bad row"),
    "caught_hard_exit": Way(5, "left with exit code 5 after ValueError: bad row"),
    "caught_later_exit": Way(9, "left with exit code 9"),
    "hook": Way(1, "ValueError: bad row"),
    "hard_exit": Way(7, "left with exit code 7"),
    "hard_exit_0": Way(1, "left early (exit code 0) while"),
    "exit_0": Way(1, "left early (exit code 0) while"),
    "c_exit": Way(6, "ended without a Python error: exit code 6", has_place=False),
    "c_exit_0": Way(1, "left early (exit code 0) while", has_place=False),
    "sigkill": Way(137, "killed by SIGKILL", has_place=False),
    "sigterm": Way(143, "", has_place=False),
    "segfault": Way(139, "killed by SIGSEGV"),
    "abort": Way(134, "killed by SIGABRT: os.abort() was called"),
    "memory": Way(1, "MemoryError"),
    "interrupt": Way(130, "KeyboardInterrupt"),
    "str_raises": Way(1, "BadRow: (its __str__ raises)"),
    "group": Way(1, "ExceptionGroup: readers (1 sub-exception): ValueError: bad row", has_place=False),
    "torn_down": Way(1, "ValueError: bad row"),
    "mismatch": Way(134, "killed by SIGABRT: [enforce fail at", torch_only=True, ranks=2),
}
HANGS = {
    "lock": Way(HANG_CODE, "HANG"),
    "sigstop": Way(HANG_CODE, "HANG", has_place=False),
    "holds_gil": Way(HANG_CODE, "HANG"),
    "fifo": Way(HANG_CODE, "HANG"),
    "at_exit": Way(HANG_CODE, "HANG", has_place=False),
    "loops": Way(HANG_CODE, "HANG"),
    "extra": Way(HANG_CODE, "HANG", culprit=0),
    "skips": Way(HANG_CODE, "HANG"),
}
SAMPLE = [
    ("jax", "plain", "hook", "exit"),
    ("jax", "plain", "hard_exit_0", "raise"),
    ("torch", "plain", "mismatch", "leave"),
    ("torch", "plain", "torn_down", "raise"),
]
CASES = [
    (framework, way_in, name, victims)
    for name, way in {**ENDS, **HANGS}.items()
    for framework in ("jax", "torch")
    for way_in in ("plain", "init")
    for victims in (("raise", "exit", "leave") if name in ENDS and way_in == "plain" else ("raise",))
    if framework == "torch" or not way.torch_only
]


@pytest.fixture(scope="module", autouse=True)
def load() -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOAD)]
    yield
    for process in busy:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("framework", "way_in", "name", "victims"),
    [
        pytest.param(*case, marks=[pytest.mark.needs(case[0]), *([] if case in SAMPLE else [pytest.mark.soak])])
        for case in CASES
    ],
)
def test_the_first_failure_is_that_of_the_rank_that_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str, way_in: str, name: str, victims: str
) -> None:
    """Its exit code is the job's, and its line is named where Python has one."""
    way = (ENDS | HANGS)[name]
    options = ("--hang-after", HANG_AFTER, "--on-hang", "end") if name in HANGS else ()
    monkeypatch.setenv("VICTIMS", victims)
    for _ in range(RUNS):
        began = time.monotonic()
        words = ("-n", str(way.ranks), "--timeout", "120", *options, str(PROGRAM), framework, way_in, name)
        done = allranks(*words, cwd=tmp_path, limit=240)
        [first] = re.findall(r"^first failure: (.*)$", done.out, re.MULTILINE) or [""]
        print(
            f"{framework} {way_in} {name} {victims}: exit code {done.code}, {time.monotonic() - began:.1f} s: {first}"
        )
        assert first.startswith(f"rank {way.culprit} "), done.out
        assert way.says in first, done.out
        place = re.search(rf"{PROGRAM.name}:(\d+)\b", first)
        assert not way.has_place or (place and int(place[1]) in lines_of(name)), done.out
        assert done.code == way.code, done.out


def lines_of(name: str) -> list[int]:
    return [number for number, line in enumerate(LINES, 1) if line.endswith(f"# <- {name}")]
