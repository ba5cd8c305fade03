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
PAGE = Path(__file__).parents[2] / "docs" / "failures.md"
RUNS, LOAD = int(os.environ.get("ENDS_RUNS", "1")), int(os.environ.get("ENDS_LOAD", "0"))
HANG_AFTER, HANG_CODE = "6", 75


@dataclass(frozen=True)
class Way:
    """One row of the table: ``title`` is for the page, ``says`` is in the headline, and with ``has_place`` its line is.

    ``torch_only``: JAX has no such end. Gloo aborts on a mismatch of sizes between two ranks; of more, some wait.
    """

    title: str
    code: int
    says: str
    has_place: bool = True
    torch_only: bool = False
    ranks: int = 3


ENDS = {
    "raises": Way("an exception", 1, "ValueError: bad row"),
    "thread": Way("an exception in a thread", 1, "in thread 'reader': OSError: disk gone"),
    "exit_code": Way("`sys.exit(3)`", 3, "left with exit code 3"),
    "exit_text": Way("`sys.exit('no data')`", 1, "left with exit code 1: no data"),
    "caught_exit": Way(
        "catches its exception, then `sys.exit(1)`", 1, "left with exit code 1 after ValueError: bad row"
    ),
    "caught_hard_exit": Way(
        "catches its exception, then `os._exit(5)`", 5, "left with exit code 5 after ValueError: bad row"
    ),
    "caught_later_exit": Way("`sys.exit(9)` after the handler of its exception", 9, "left with exit code 9"),
    "hook": Way("an excepthook of its own that calls `os._exit(4)`", 4, "ValueError: bad row"),
    "hard_exit": Way("`os._exit(7)`", 7, "left with exit code 7"),
    "hard_exit_0": Way("`os._exit(0)`", 1, "left early (exit code 0) while"),
    "exit_0": Way("`sys.exit(0)`", 1, "left early (exit code 0) while"),
    "c_exit": Way("C calls `_exit(6)`", 6, "ended without a Python error: exit code 6", has_place=False),
    "c_exit_0": Way("C calls `_exit(0)`", 1, "left early (exit code 0) while", has_place=False),
    "sigkill": Way("SIGKILL", 137, "killed by SIGKILL", has_place=False),
    "sigterm": Way("SIGTERM", 143, "killed by SIGTERM", has_place=False),
    "segfault": Way("a crash in C", 139, "killed by SIGSEGV"),
    "abort": Way("`os.abort()`", 134, "killed by SIGABRT: os.abort() was called"),
    "memory": Way("no memory", 1, "MemoryError"),
    "interrupt": Way("`KeyboardInterrupt`", 130, "KeyboardInterrupt"),
    "str_raises": Way("an exception whose `__str__` raises", 1, "BadRow: (its __str__ raises)"),
    "group": Way(
        "an exception group", 1, "ExceptionGroup: readers (1 sub-exception): ValueError: bad row", has_place=False
    ),
    "torn_down": Way("leaves the process group while its exception is on the way", 1, "ValueError: bad row"),
    "mismatch": Way(
        "sizes differ (torch, two ranks)", 134, "killed by SIGABRT: [enforce fail at", torch_only=True, ranks=2
    ),
}
HANGS = {
    "lock": Way("waits for a lock", HANG_CODE, "HANG"),
    "sigstop": Way("SIGSTOP", HANG_CODE, "HANG", has_place=False),
    "holds_gil": Way("holds the GIL in C", HANG_CODE, "HANG", has_place=False),
    "fifo": Way("reads a FIFO", HANG_CODE, "HANG"),
    "at_exit": Way("hangs in an atexit function", HANG_CODE, "HANG", has_place=False),
    "loops": Way("an endless loop", HANG_CODE, "HANG"),
    "skips": Way("leaves one collective out", HANG_CODE, "HANG"),
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
    if victims != "leave" or name not in ("exit_0", "hard_exit_0", "c_exit_0")  # then all leave with 0
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
        assert first.startswith("rank 1 "), done.out
        assert way.says in first, done.out
        place = re.search(rf"{PROGRAM.name}:(\d+)\b", first)
        assert not way.has_place or (place and int(place[1]) in lines_of(name)), done.out
        assert done.code == way.code, done.out


def lines_of(name: str) -> list[int]:
    return [number for number, line in enumerate(LINES, 1) if line.endswith(f"# <- {name}")]


@pytest.mark.parametrize(("head", "ways"), [("way to end", ENDS), ("way to hang", HANGS)])
def test_the_page_lists_every_way(head: str, ways: dict[str, Way]) -> None:
    """docs/failures.md has what is tested here, and nothing else."""
    lines = PAGE.read_text().splitlines()
    table = lines[lines.index(f"| {head} | what is named | exit code |") + 2 :]
    assert table[: len(ways)] == [row(way) for way in ways.values()]
    assert not table[len(ways)]


def row(way: Way) -> str:
    place = ", its line" if way.has_place else ""
    return f"| {way.title} | rank 1{place}{': ' if way.says else ''}{way.says} | {way.code} |"
