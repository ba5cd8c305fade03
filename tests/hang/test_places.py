"""The launcher finds out where ranks are: when time is over, and where they hold up the start or the end of a job."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

import harness
import pytest

from allranks.hang.places import exit_of
from allranks.hang.stacks import threads_of_dump

PROGRAM = Path(__file__).parent / "programs" / "holds_up.py"
PLACES = {
    "atexit": "atexit callback",
    "thread": "non-daemon thread",
    "destructor": "destructor",
    "generator": "destructor",
}
FRAMEWORKS = ["none", *(pytest.param(name, marks=pytest.mark.needs(name)) for name in ("torch", "jax"))]
FRAMEWORKS.append(pytest.param("init", marks=pytest.mark.needs("jax")))


def run(framework: str, where: str, *options: object) -> harness.Job:
    start = ["--no-zygote"] if framework == "none" else []  # nothing is worth being imported before
    words = [sys.executable, "-m", "allranks", "run", "-n", 2, "--timeout", 60, *start, *options]
    command = [*words, PROGRAM, framework, where]
    return harness.run_commands([([str(word) for word in command], harness.clean_environ())])


def check_exit(framework: str, where: str) -> None:
    job = run(framework, where, "--hang-after", 1, "--on-hang", "end")
    assert job.codes == [75], job
    waits = r"HANG: rank 0 waits for rank 1 \(host \S+\) to end, since \d+ s"
    says = rf"{waits}, in {PLACES[where]}.* at \S*holds_up.py:\d+ in late"
    assert re.search(rf"allranks: {says}", job.ranks[0].text), job
    assert re.search(rf"first failure: rank 1 .*{says}", job.ranks[0].text), job


@pytest.mark.parametrize("where", ["atexit", "destructor"])
def test_a_process_that_does_not_end_is_reported(where: str) -> None:
    """With the line, while no Python of it can say so."""
    check_exit("none", where)


@pytest.mark.soak
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_whatever_holds_up_the_end_is_reported(framework: str, where: str) -> None:
    check_exit(framework, where)


@pytest.mark.soak
@pytest.mark.parametrize("framework", FRAMEWORKS[1:])
def test_a_rank_that_does_not_come_to_the_start_is_reported(framework: str) -> None:
    job = run(framework, "start", "--hang-after", 1, "--on-hang", "end")
    assert job.codes == [75], job
    says = (
        r"HANG: rank 0 waits for rank 1 \(host \S+\) to join .*, since \d+ s, in Python at \S*holds_up.py:\d+ in late"
    )
    assert re.search(says, job.ranks[0].text), job


@pytest.mark.parametrize(
    "framework", ["none", *(pytest.param(*p.values, marks=[*p.marks, pytest.mark.soak]) for p in FRAMEWORKS[1:])]
)
def test_when_time_is_over_each_rank_is_shown(framework: str) -> None:
    """Before they are ended: a table, and the stacks."""
    job = run(framework, "main", "--timeout", 4 if framework == "none" else 12)
    out = job.ranks[0].text
    assert job.codes == [124], job
    assert re.search(r"allranks: the time limit of \d+ s is over.*where each rank is:", out), job
    assert re.search(r"allranks: +1 +\S+ +Python +\S*holds_up.py:\d+ in late", out), job
    assert re.search(r"stack of rank 1:\s*\n(.*\n)*?.*in late", out), job


DUMPS = {
    "atexit callback": 'Current thread 0x1 (most recent call first):\n  File "/x/train.py", line 13 in late\n',
    "destructor (__del__, or a generator that is closed)": (
        'Current thread 0x1 (most recent call first):\n  Garbage-collecting\n  File "/x/train.py", line 13 in late\n'
    ),
    "non-daemon thread": (
        'Thread 0x2 (most recent call first):\n  File "/x/train.py", line 13 in late\n'
        '  File "/usr/lib/python3/threading.py", line 982 in run\n\n'
        'Current thread 0x1 (most recent call first):\n  File "/usr/lib/python3/threading.py", line 1590 in _shutdown\n'
    ),
}


@pytest.mark.parametrize("what", DUMPS)
def test_what_holds_up_an_exit_is_read_off_the_stacks(what: str) -> None:
    found, frames = exit_of(DUMPS[what], threads_of_dump(DUMPS[what]))
    assert found == what
    assert [(frame.function, frame.line) for frame in itertools.islice(frames, 1)] == [("late", 13)]
