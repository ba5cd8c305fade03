"""Usual programs, ``projects/right``, in which no rule finds anything. A bug is planted in each, and that one is found.

``bugs.txt`` has the bugs: a program and the code of a rule, the lines that are replaced, and the lines instead of them.
Behind the code stands ``missed`` where the rule is known not to find it. Whoever mends that removes the word.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from allranks.check.engine import Settings, check

FOLDER = Path(__file__).parent / "projects" / "right"


class Bug(NamedTuple):
    """What makes a right program wrong."""

    program: str
    code: str
    before: str
    after: str
    missed: bool


def bug(text: str) -> Bug:
    """Read one bug."""
    title, *lines = text.strip("\n").split("\n")
    program, _, rest = title.partition(": ")
    code, _, missed = rest.partition(" ")
    before, after = ("".join(f"{line[1:]}\n" for line in lines if line[0] == sign) for sign in "-+")
    return Bug(program, code, before, after, missed == "missed")


BUGS = [bug(text) for text in (FOLDER / "bugs.txt").read_text().split("\n\n")]


def shown(text: str) -> set[str]:
    """Return the codes of what is shown by default."""
    findings = check({"train.py": text.encode()}, Settings()).findings
    return {one.code for one in findings if one.confidence == "high"}


@pytest.mark.parametrize("program", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_a_right_program_is_silent(program: str) -> None:
    """Under every rule that runs by default."""
    assert shown((FOLDER / f"{program}.py").read_text()) == set()


@pytest.mark.parametrize("bug", BUGS, ids=[f"{at} {bug.program} {bug.code}" for at, bug in enumerate(BUGS)])
def test_a_bug_in_a_right_program_is_found(bug: Bug) -> None:
    """Perhaps with others that follow from it."""
    text = (FOLDER / f"{bug.program}.py").read_text()
    assert text.count(bug.before) == 1
    assert (bug.code in shown(text.replace(bug.before, bug.after))) is not bug.missed
