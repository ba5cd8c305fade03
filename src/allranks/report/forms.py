"""Render a report in one of its formats, by its name on the command line. A format is imported at its first use."""

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
    """Return the report as text in one of the formats FORMS, without a line end.

    Only formats in COLOURED use ``colour``.
    """
    module, _, name = _HOMES[form].partition(":")
    shown: Callable[..., str] = getattr(import_module(f"allranks.report.{module}"), name)
    return shown(report, colour=colour) if form in COLOURED else shown(report)
