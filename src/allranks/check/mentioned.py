"""What the files of a project speak of, whoever runs them. Pure."""

from __future__ import annotations

import re

from allranks.check.project import Project
from allranks.check.tables.names import documented

_TELLING = re.compile(r"(?i)init|set_?up|launch|join|start|spawn|epoch|device|cuda")


def mentioned(project: Project) -> tuple[frozenset[str], frozenset[str]]:
    """Return the packages that are imported, and the words that may speak of a start, of epochs or of devices."""
    summaries = project.summaries.values()
    packages = {documented(dotted).partition(".")[0] for summary in summaries for dotted, _ in summary.imports}
    functions = (facts for summary in summaries for facts in summary.functions.values())
    words = set().union(*(facts.words for facts in functions))
    return frozenset(packages), frozenset(word for word in words if _TELLING.search(word))
