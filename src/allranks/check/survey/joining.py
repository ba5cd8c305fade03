"""Whether files may join the processes of a program, as far as their imports and names tell."""

from __future__ import annotations

import re
from collections.abc import Iterable

from allranks.check.sources.source import is_test
from allranks.check.summaries.project import Project, closed, mentioned
from allranks.check.tables.evidence import JOINING_PACKAGES

# Names of functions, ours or a stranger's, that may well join the processes.
_MAY_JOIN = re.compile(
    r"(?i)(?=.*(init|set_?up|launch|join|start|spawn)).*(dist|process|ddp|parallel|group|rank|multi)"
)


def may_join(packages: Iterable[str], names: Iterable[str]) -> bool:
    """Whether one of these packages, or functions of these names, may join the processes."""
    return not JOINING_PACKAGES.isdisjoint(packages) or any(map(_MAY_JOIN.search, names))


def alone(project: Project) -> frozenset[str]:
    """Return the files of programs in which nothing may join processes, where other files of the project may, and that
    belong to no program with these."""
    joining = [path for path in project.summaries if not is_test(path) and may_join(*mentioned(project, [path]))]
    joined = project.around(joining)
    programs = [path for path in project.summaries if path not in joined and project.is_program(path)]
    return frozenset(closed(programs, project.imported)) - joined if joining else frozenset()
