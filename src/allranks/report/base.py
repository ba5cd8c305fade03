"""Define a report of findings, and how all its formats name a place in the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from allranks.failure import visible
from allranks.findings import Finding, Place, Row, Severity
from allranks.report.timeline import RehearsalFacts

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Cell:
    """A code cell of a notebook. ``number`` is its number among all cells, from 1.

    ``first`` is the number of its first line in the joined text of all cells.
    """

    number: int
    first: int


@dataclass(frozen=True, slots=True)
class Source:
    """The source text of a file with findings, as lines. ``cells`` has the code cells if the file is a notebook."""

    lines: tuple[str, ...]
    cells: tuple[Cell, ...] = ()

    def line(self, number: int) -> str:
        """Return line ``number`` (from 1) without its line end, or "" if there is no such line."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def around(self, first: int, last: int, more: int) -> list[int]:
        """Return the numbers of the lines ``first`` to ``last``, and of ``more`` lines on both sides, in
        the same cell.
        """
        lines = range(max(1, first - more), min(len(self.lines), last + more) + 1)
        return [line for line in lines if self.cell(line) == self.cell(first)]

    def cell(self, line: int) -> Cell | None:
        """Return the notebook cell that contains a line, or None if there is none."""
        return next((cell for cell in reversed(self.cells) if cell.first <= line), None)


@dataclass(frozen=True, slots=True)
class RuleNote:
    """The description of a rule in a report: its code, its name, and a sentence about what it finds.

    In unseen code (not used to develop the rule), ``right`` of ``read`` findings were right; 0 of 0 if nobody knows.
    """

    code: str
    name: str
    summary: str
    right: int = 0
    read: int = 0

    @property
    def precision(self) -> float | None:
        """The share of its findings that was right, or None if it is not known."""
        return self.right / self.read if self.read else None


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a report, from which all formats are rendered.

    - ``project``: the name of the project's folder.
    - ``sources``: the files of findings and evidence. ``prints``: the fingerprints of findings.
    - ``rules``: the rules that found something.
    - ``hidden``, ``withheld``, ``unsure``: how many findings are not shown because of the baseline, of low confidence,
      or of ``--precision``.
    - ``allowed``: how many findings the project's settings allow. ``suppressed``: how many a comment hides, as far as
      they are counted.
    - ``confirmations``: what a rehearsal says about each finding.
    - ``tool``: the command that made the report.
    - ``rehearsal``: the facts about a rehearsal, if the report is of one.
    - ``subject``: what the command examined, if not files, e.g. "4 runs of 2 ranks".
    """

    findings: tuple[Finding, ...]
    rows: tuple[Row, ...]
    files: int
    lines: int
    version: str
    project: str = ""
    sources: Mapping[str, Source] = field(default_factory=dict)
    prints: Mapping[Finding, str] = field(default_factory=dict)
    rules: tuple[RuleNote, ...] = ()
    hidden: int = 0
    withheld: int = 0
    unsure: int = 0
    allowed: int = 0
    suppressed: int = 0
    confirmations: Mapping[Finding, str] = field(default_factory=dict)
    tool: str = "allranks check"
    subject: str = ""
    rehearsal: RehearsalFacts | None = None

    def where(self, place: Place) -> str:
        """Format a place for people, e.g. ``train.py:41:9``, or ``tour.ipynb:cell 3:2:9`` for a notebook."""
        cell, line = self.spot(place)
        middle = f"cell {cell}:" if cell else ""
        return f"{visible(place.path)}:{middle}{line}:{place.column}"

    def line_of(self, place: Place) -> str:
        """Format a place without its column, e.g. ``train.py:41``."""
        return self.where(place).rpartition(":")[0]

    def spot(self, place: Place) -> tuple[int | None, int]:
        """Return the number of the notebook cell (None outside notebooks), and the line within the cell or the file."""
        source = self.sources.get(place.path)
        cell = source.cell(place.line) if source else None
        return (cell.number, place.line - cell.first + 1) if cell else (None, place.line)

    def precision(self, finding: Finding) -> float | None:
        """Return the share of this rule's findings that was right, or None if it is not known."""
        return next((rule.precision for rule in self.rules if rule.code == finding.code), None)

    def right_of(self) -> tuple[int, int]:
        """Return how many findings of the rules in this report were right in unseen code, and of how many."""
        codes = {finding.code for finding in self.findings}
        known = [rule for rule in self.rules if rule.code in codes]
        return sum(rule.right for rule in known), sum(rule.read for rule in known)

    def counts(self) -> dict[Severity, int]:
        """Return the number of findings for each severity."""
        found = Counter(finding.severity for finding in self.findings)
        return {severity: found[severity] for severity in SEVERITIES}


def count(number: int, noun: str) -> str:
    """Format a number and its noun, e.g. ``1 file`` or ``2,345 files``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def verdict_of(report: Report) -> tuple[str, str]:
    """Return the verdict on a rehearsed program: its kind ("error", "warning" or "ok"), and a sentence."""
    counts = report.counts()
    if report.rehearsal and report.rehearsal.failure:
        return "error", "The program fails by itself"
    if counts["error"]:
        return "error", f"This program would go wrong on a cluster: {count(counts['error'], 'error')}"
    if counts["warning"]:
        return "warning", f"This program may go wrong on a cluster: {count(counts['warning'], 'warning')}"
    return "ok", "Nothing wrong was seen"


def title(report: Report) -> str:
    if report.rehearsal:
        return f"Rehearsal of {report.rehearsal.command}"
    of = f" of {report.project}" if report.project else ""
    return f"Readiness{of} for several processes"


def summary(report: Report) -> str:
    """Return the last lines of a report: how many findings of each severity, and in how many files and lines."""
    found = [count(number, severity) for severity, number in report.counts().items() if number and severity != "info"]
    if infos := report.counts()["info"]:
        found.append(count(infos, "remark"))
    files = f"{count(report.files, 'file')}, {count(report.lines, 'line')}"
    read = f"in {report.subject or files}"
    text = f"Found {' and '.join(', '.join(found).rsplit(', ', 1))} {read}." if found else f"No findings {read}."
    safe = sum(1 for finding in report.findings if finding.fix and finding.fix.safe)
    if safe:
        text += f"\n[*] {safe} fixable with --fix."
    right, all_read = report.right_of()
    if all_read:
        text += f"\nIn unread code {right} of {all_read} findings of these rules were right"
        text += " (--precision 0.7 shows surer ones)."
        if others := sum(1 for finding in report.findings if report.precision(finding) is None):
            text += f" Not measured: {count(others, 'finding')}."
    if report.hidden:
        text += f"\n{count(report.hidden, 'finding')} known to the baseline, not shown."
    if report.allowed:
        text += f"\n{count(report.allowed, 'finding')} allowed by the settings, not shown."
    if report.suppressed:
        text += f"\n{count(report.suppressed, 'finding')} suppressed by comments, not shown."
    if report.withheld:
        text += f"\n{count(report.withheld, 'finding')} more of low confidence: --confidence low."
    if report.unsure:
        text += f"\n{count(report.unsure, 'finding')} more of less precise or unmeasured rules: --precision 0."
    return text
