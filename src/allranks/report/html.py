"""Render the report as one HTML file without external resources, which a team can pass around."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby

from allranks.failure import visible
from allranks.findings import Finding, Note, Place
from allranks.report.base import Report, count, title, verdict_of
from allranks.report.page_style import SCRIPT, STYLE
from allranks.report.readiness import evidence_texts
from allranks.report.timeline import RehearsalFacts
from allranks.report.timeline_page import timeline_section

AROUND, TALL, MOST = 2, 8, 8


def html(report: Report) -> str:
    """Return the page: the verdict, what was not seen, the findings by file, and the timeline of a rehearsal.

    A report of code that was only read has its figures and the readiness table first. Findings have filters for code.
    """
    body = [*(_rehearsal(report, report.rehearsal) if report.rehearsal else _check(report))]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title(report))}</title><style>{STYLE}</style>"
    )
    page = "\n".join(body)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{page}\n<script>{SCRIPT}</script></body></html>'
    )


def _check(report: Report) -> Iterator[str]:
    read = f"{count(report.files, 'file')}, {count(report.lines, 'line')} read; none of it was run"
    yield f"<header><h1>{_text(title(report))}</h1>"
    yield f"<p>{_text(report.tool)} {_text(report.version)}: {report.subject or read}.</p></header>"
    yield from _figures(report)
    yield from _readiness(report)
    yield from _findings(report)


def _rehearsal(report: Report, facts: RehearsalFacts) -> Iterator[str]:
    kind, verdict = verdict_of(report)
    yield f'<header><p class="where">{_text(report.tool)} {_text(report.version)}</p>'
    yield f'<h1 class="{kind}">{_text(verdict)}</h1>'
    yield f"<p><code>{_text(facts.command)}</code>: {_text(report.subject)}.</p></header>"
    yield from _figures(report)
    yield from _not_seen(report)
    yield from _findings(report)
    yield from timeline_section(facts.timelines, report.findings)
    yield "<h2>Runs</h2><table><thead><tr><th>run<th>steps<th>seconds<th>end</tr></thead><tbody>"
    for run in facts.runs:
        figures = (str(run.steps), f"{run.seconds:.1f}") if run.was_made else ("", "")
        end = run.end if run.was_made else f"not made: {run.end}"
        yield f"<tr><td>{_text(run.title)}<td>{figures[0]}<td>{figures[1]}<td>{_text(end)}</tr>"
    yield "</tbody></table>"
    yield from _readiness(report)


def _not_seen(report: Report) -> Iterator[str]:
    """Yield the HTML that lists what a rehearsal could not check, and why."""
    rows = [row for row in report.rows if row.verdict in ("not seen", "not determined")]
    if not rows:
        return
    yield "<h2>Not seen</h2><table><tbody>"
    for row in rows:
        why = "<br>".join(_prose(text) for text in evidence_texts(row, most=MOST, where=report.line_of))
        yield f"<tr><td>{_text(row.topic)}<td class=why>{why}</tr>"
    yield "</tbody></table>"


def _findings(report: Report) -> Iterator[str]:
    yield from _filters(report)
    numbers = {id(finding): number for number, finding in enumerate(report.findings, 1)}
    for path, findings in groupby(report.findings, key=lambda finding: finding.place.path):
        yield from _file(report, path, [*findings], numbers)


def _text(text: str) -> str:
    return escape(visible(text))


def _prose(text: str) -> str:
    """Escape a text for HTML, and show text between backticks as code."""
    parts = _text(text).split("`")
    even = len(parts) % 2 == 1
    return "".join(f"<code>{part}</code>" if at % 2 and even else part for at, part in enumerate(parts))


def _figures(report: Report) -> Iterator[str]:
    yield '<section class="figures">'
    for severity, number in report.counts().items():
        word = count(number, {"info": "remark"}.get(severity, severity)).partition(" ")[2]
        yield f'<div class="figure {severity if number else "none"}"><b>{number}</b>{word}</div>'
    right, read = report.right_of()
    if read:
        text = "findings of these rules were right in unread code"
        yield f'<div class="figure none"><b>{right} of {read}</b>{text}</div>'
    if report.hidden:
        yield f'<div class="figure none"><b>{report.hidden}</b>known to the baseline</div>'
    if report.allowed:
        yield f'<div class="figure none"><b>{report.allowed}</b>allowed by the settings</div>'
    if report.suppressed:
        yield f'<div class="figure none"><b>{report.suppressed}</b>suppressed by comments</div>'
    if report.withheld:
        yield f'<div class="figure none"><b>{report.withheld}</b>of low confidence, not shown</div>'
    if report.unsure:
        yield f'<div class="figure none"><b>{report.unsure}</b>of less precise rules, not shown</div>'
    yield "</section>"


def _readiness(report: Report) -> Iterator[str]:
    if not report.rows:
        return
    yield "<h2>Readiness</h2><table><thead><tr><th>topic<th>verdict<th>evidence</tr></thead><tbody>"
    for row in report.rows:
        told = "<br>".join(_prose(text) for text in evidence_texts(row, most=MOST, where=report.line_of))
        kind = row.verdict.replace(" ", "-")
        yield f'<tr><td>{_text(row.topic)}<td><span class="verdict {kind}">{row.verdict}</span><td>{told}</tr>'
    yield "</tbody></table>"


def _filters(report: Report) -> Iterator[str]:
    codes = Counter((finding.code, finding.name) for finding in report.findings)
    yield f"<h2>{count(len(report.findings), 'finding') if codes else 'No findings'}</h2>"
    if len(codes) < 2:
        return
    yield '<nav aria-label="filter by rule"><button data-code="" class="on">all</button>'
    for (code, name), number in sorted(codes.items()):
        yield f'<button data-code="{_text(code)}" title="{_text(name)}">{_text(code)} <i>{number}</i></button>'
    yield "</nav>"


def _file(report: Report, path: str, findings: list[Finding], numbers: Mapping[int, int]) -> Iterator[str]:
    yield f'<section class="file"><h3>{_text(path)}</h3>'
    for finding in findings:
        anchor = f'id="finding-{numbers[id(finding)]}"'
        yield f'<article {anchor} class="{finding.severity}" data-code="{_text(finding.code)}">'
        yield f'<h4><span class="code">{_text(finding.code)}</span> {_prose(finding.message)}</h4>'
        where = _text(report.where(finding.place))
        where += f" in <code>{_text(finding.symbol)}</code>" if finding.symbol else ""
        yield f'<p class="where">{finding.severity}, {_text(finding.name)}, {where}</p>'
        yield from _excerpt(report, finding.place)
        yield "<dl>"
        for word, text in (("on the cluster", finding.cluster), ("to do", finding.advice)):
            if text:
                yield f"<dt>{word}<dd>{_prose(text)}"
        if finding.fix:
            yield f"<dt>fix<dd>{_prose(finding.fix.title)} ({'--fix' if finding.fix.safe else '--unsafe-fixes'})"
        if finding.replay:
            yield f"<dt>replay<dd><code>{_text(finding.replay)}</code>"
        yield "</dl>"
        yield from _notes(report, finding.notes)
        if report.rehearsal and any(note.moment for note in finding.notes):
            yield f'<p class="where">number {numbers[id(finding)]} in the <a href="#timeline">timeline</a></p>'
        yield "</article>"
    yield "</section>"


def _notes(report: Report, notes: tuple[Note, ...]) -> Iterator[str]:
    if not notes:
        return
    yield "<details open><summary>how it comes to that</summary>"
    for note in notes:
        where = f' <span class="where">{_text(report.where(note.place))}</span>' if note.place else ""
        yield f'<div class="note">{_prose(note.text)}{where}</div>'
        if note.place:
            yield from _excerpt(report, note.place, around=0)
    yield "</details>"


def _excerpt(report: Report, place: Place, *, around: int = AROUND) -> Iterator[str]:
    source = report.sources.get(place.path)
    if source is None or not source.line(place.line):
        return
    last = min(place.end_line, place.line + TALL - 1)
    lines = []
    for number in source.around(place.line, last, around):
        line = source.line(number).rstrip()
        shown = _marked(line, place, number) if place.line <= number <= last else _text(line)
        label = report.spot(Place(place.path, number, 1, number, 1))[1]
        lines.append(f'<span class="line"><span class="number">{label}</span>{shown}</span>')
    yield f"<pre>{''.join(lines)}</pre>"


def _marked(line: str, place: Place, number: int) -> str:
    start = place.column - 1 if number == place.line else len(line) - len(line.lstrip())
    end = place.end_column - 1 if number == place.end_line else len(line)
    return f"{_text(line[:start])}<mark>{_text(line[start:end])}</mark>{_text(line[end:])}"
