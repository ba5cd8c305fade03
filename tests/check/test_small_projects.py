"""Small projects, ``projects/RULE/NAME``, a folder or one program: what a rule finds in each is marked on its lines.

``# expect: AR302`` marks a finding that is shown, ``# low: AR302`` one of low confidence. A line without a mark has no
finding that is shown. What the check is known to get wrong is marked, too: ``# missed: AR302`` a fault that is not
found, ``# false: AR302`` a finding that is wrong. Whoever mends that removes the mark.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from allranks.check.engine import Settings, check

FOLDER = Path(__file__).parent / "projects"
PROJECTS = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("ar*/*"))
MARK = re.compile(r"# (expect|low|missed|false): (AR\d{3}(?:, AR\d{3})*)")


def files_of(project: str) -> dict[str, str]:
    """Return the files of a project by their paths in it; a program that is one file is called ``train.py``."""
    root = FOLDER / project
    if root.is_file():
        return {"train.py": root.read_text()}
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}


def marked(files: dict[str, str], mark: str, rule: str) -> set[tuple[str, int]]:
    """Return the lines that are marked for a rule."""
    lines = ((path, n, line) for path, text in files.items() for n, line in enumerate(text.split("\n"), 1))
    return {(path, n) for path, n, line in lines for one in MARK.finditer(line) if one[1] == mark and rule in one[2]}


@pytest.mark.parametrize("project", PROJECTS)
def test_the_rule_of_a_project_finds_what_its_lines_say(project: str) -> None:
    """Nothing else of that rule is shown; what other rules find in the project is of no interest."""
    rule, files = project.partition("/")[0].upper(), files_of(project)
    found = check({path: text.encode() for path, text in files.items()}, Settings(select=(rule,))).findings
    places = {(one.place.path, one.place.line): one.confidence for one in found}
    shown = {place for place, sure in places.items() if sure == "high"}
    assert shown == marked(files, "expect", rule) | marked(files, "false", rule)
    assert {place for place, sure in places.items() if sure == "low"} >= marked(files, "low", rule)
