"""Render the report as GitHub workflow commands, which GitHub shows beside the lines of a pull request."""

from __future__ import annotations

from allranks.failure import visible
from allranks.findings import Finding
from allranks.report.base import Report

KINDS = {"error": "error", "warning": "warning", "info": "notice"}


def github(report: Report) -> str:
    """Return the report as text: one command ``::error file=...::...`` per finding."""
    return "\n".join(_command(report, finding) for finding in report.findings)


def _command(report: Report, finding: Finding) -> str:
    cell, line = report.spot(finding.place)
    place = finding.place
    spot = {"title": f"{finding.code} {finding.name}", "file": place.path, "line": 1}
    if cell is None:
        # GitHub reads columns only if the span is on one line.
        span = {"col": place.column, "endColumn": place.end_column} if place.line == place.end_line else {}
        spot |= {"line": line, "endLine": place.end_line, **span}
    message = finding.message if finding.message.endswith((".", "!", "?")) else f"{finding.message}."
    text = f"{report.where(place)}: {finding.code} {message}"
    properties = ",".join(f"{key}={_property(str(value))}" for key, value in spot.items())
    return f"::{KINDS[finding.severity]} {properties}::{_data(f'{text} {finding.advice}'.rstrip())}"


def _data(text: str) -> str:
    return visible(text).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
