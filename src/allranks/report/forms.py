"""The forms of a report, by the names that the command line gives them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from allranks.report.base import Report
from allranks.report.document import as_json
from allranks.report.full import concise, full
from allranks.report.github import github
from allranks.report.html import html
from allranks.report.markdown import markdown
from allranks.report.sarif import sarif

Form: TypeAlias = Callable[[Report], str]

COLOURED = MappingProxyType({"full": full, "concise": concise})
PLAIN: Mapping[str, Form] = MappingProxyType(
    {"json": as_json, "sarif": sarif, "github": github, "markdown": markdown, "html": html}
)
FORMS = (*COLOURED, *PLAIN)


def render(report: Report, form: str, *, colour: bool = False) -> str:
    """Return the report in one of FORMS, without a line end. ``colour`` counts for ``full`` and ``concise`` only."""
    if form in COLOURED:
        return COLOURED[form](report, colour=colour)
    return PLAIN[form](report)
