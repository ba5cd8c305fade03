"""Small projects, ``projects/RULE/NAME/``: what a rule finds in each stands on the line, as ``# expect: AR302``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from allranks.check.engine import Settings, check

FOLDER = Path(__file__).parent / "projects"
PROJECTS = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*") if path.is_dir())
EXPECTED = re.compile(r"# expect: (AR\d{3}(?:, AR\d{3})*)")


@pytest.mark.parametrize("project", PROJECTS)
def test_the_rule_of_a_project_finds_what_its_lines_say(project: str) -> None:
    """Nothing else of that rule; what other rules find in it is of no interest."""
    root, rule = FOLDER / project, project.partition("/")[0].upper()
    sources = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    lines = ((path, n, line) for path, raw in sources.items() for n, line in enumerate(raw.decode().split("\n"), 1))
    expected = {(path, n) for path, n, line in lines if (at := EXPECTED.search(line)) and rule in at[1]}
    found = {(f.place.path, f.place.line) for f in check(sources, Settings(select=(rule,))).findings}
    assert found == expected


def test_every_project_is_of_a_rule_with_two_sides() -> None:
    """A rule with projects has one in which it finds something, and one in which it is silent."""
    rules = {project.partition("/")[0] for project in PROJECTS}
    texts = {p: "".join(f.read_text() for f in (FOLDER / p).rglob("*") if f.is_file()) for p in PROJECTS}
    for rule in rules:
        ours = [EXPECTED.search(text) is not None for project, text in texts.items() if project.startswith(f"{rule}/")]
        assert set(ours) == {True, False}, rule
