"""The forms of a report, by their names on the command line. Each is imported when it is first used. Pure."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import MappingProxyType

from allranks.report.base import Report

_HOMES = MappingProxyType(
    {
        "full": "full:full",
        "concise": "full:concise",
        "json": "document:as_json",
        "sarif": "sarif:sarif",
        "github": "github:github",
        "markdown": "markdown:markdown",
        "html": "html:html",
    }
)
COLOURED = ("full", "concise")
FORMS = tuple(_HOMES)


def render(report: Report, form: str, *, colour: bool = False) -> str:
    """Return the report in one of FORMS, without a line end. ``colour`` counts for those of COLOURED only."""
    module, _, name = _HOMES[form].partition(":")
    shown: Callable[..., str] = getattr(import_module(f"allranks.report.{module}"), name)
    return shown(report, colour=colour) if form in COLOURED else shown(report)
