"""Comments that suppress findings, the ones that suppress nothing (AR901) and the ones refused (AR902). Pure.

``# allranks: ignore[AR101] reason`` at the end of a statement, or on a line of its own above one, is about that whole
statement (of a compound one: its head). ``# allranks: file-ignore[AR101] reason`` is about the file. ``# noqa: AR101``
is understood; what else stands in a noqa is other tools'. A comment names its codes: blanket forms are refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches

from allranks.check.rules.ar901_unused_suppression import UnusedSuppression
from allranks.check.rules.ar902_invalid_suppression import InvalidSuppression
from allranks.check.sources.logical import Comment, Logical, logical_lines, split_lines
from allranks.check.sources.source import module_name
from allranks.findings import Edit, Finding, Fix, Place

MENTION = re.compile(rb"#[^\n#]*(?:(?i:allranks):|(?i:noqa):(?:(?!(?i:noqa):)[^\n])*(?i:AR)\d)")
_OURS = re.compile(
    r"#\s*allranks:\s*(?P<word>[a-z-]+)\s*(?P<list>\[(?P<codes>[^\]#]*)(?P<end>\])?)?[^#]*", re.IGNORECASE
)
_NOQA = re.compile(r"#\s*noqa:\s*(?P<codes>[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)", re.IGNORECASE)
_CODE = re.compile(r"AR\d{3}")
_WORDS = ("ignore", "file-ignore")
_END = 1 << 30


@dataclass(frozen=True, slots=True)
class Suppression:
    """Findings with one of ``codes`` that begin on lines ``first`` to ``last`` are not shown.

    ``comment`` is where it stands, ``text`` what is there, ``whole`` the span to remove it with the blanks before it.
    """

    codes: tuple[str, ...]
    first: int
    last: int
    comment: Place
    text: str
    whole: Place


@dataclass(frozen=True, slots=True)
class _Read:
    """A comment that is, or may be meant as, one of ours."""

    word: str
    codes: tuple[str, ...]
    listed: bool
    closed: bool
    place: Place
    text: str


def suppressions(path: str, text: str, known: Collection[str]) -> tuple[tuple[Suppression, ...], tuple[Finding, ...]]:
    """Return the suppressions of a file, and a finding for each that is refused. ``known``: all codes there are."""
    found: list[Suppression] = []
    refused: list[Finding] = []
    lines = split_lines(text)
    for line in logical_lines(text):
        for comment in (*line.above, *line.inside):
            for read in _read(path, comment):
                if why := _refusal(read, known):
                    refused.append(InvalidSuppression().finding(read.place, module_name(path), why))
                elif read.word in ("noqa", *_WORDS):
                    whole = _with_blanks(read.place, lines[read.place.line - 1])
                    found.append(Suppression(read.codes, *_span(read, line), read.place, read.text, whole))
    return tuple(found), tuple(refused)


def suppressed(findings: Iterable[Finding], by: Iterable[Suppression]) -> tuple[list[Finding], set[tuple[Place, str]]]:
    """Return the findings of one file that stay, and which codes of which comments suppressed something."""
    kept: list[Finding] = []
    used: set[tuple[Place, str]] = set()
    by = tuple(by)
    for finding in findings:
        line, code = finding.place.line, finding.code
        hits = {(one.comment, code) for one in by if code in one.codes and one.first <= line <= one.last}
        used |= hits
        if not hits:
            kept.append(finding)
    return kept, used


def unused(by: Iterable[Suppression], used: Collection[tuple[Place, str]], ran: Collection[str]) -> Iterator[Finding]:
    """Yield AR901 for each comment with codes that suppressed nothing, of rules that ran."""
    for one in by:
        idle = [code for code in one.codes if code in ran and (one.comment, code) not in used]
        if idle:
            message = f"Unused suppression: no {' or '.join(idle)} is found here"
            fix = Fix("Remove the suppression", _removal(one, idle), safe=True)
            yield UnusedSuppression().finding(one.comment, module_name(one.comment.path), message, fix=fix)


def _removal(one: Suppression, idle: Collection[str]) -> tuple[Edit, ...]:
    """Return the edit that takes codes out of a comment, or the comment away if no code is left in it."""
    head, _, rest = one.text.partition("[") if "[" in one.text else one.text.partition(":")
    words = [word for word in re.split(r"[\s,]+", rest.partition("]")[0].strip()) if word]
    left = [word for word in words if word.upper() not in idle]
    if not left:
        return (Edit(one.whole, ""),)
    text = f"{head}[{', '.join(left)}]{rest.partition(']')[2]}" if "[" in one.text else f"{head}: {', '.join(left)}"
    return (Edit(one.comment, text),)


def _with_blanks(comment: Place, line: str) -> Place:
    """Return the span of a comment with the blanks before it; the line, if there is nothing else on it."""
    before, after = line[: comment.column - 1].rstrip(), line[comment.end_column - 1 :]
    if after.strip():
        return replace(comment, end_column=len(line) - len(after.lstrip()) + 1)
    if before:
        return replace(comment, column=len(before) + 1)
    return Place(comment.path, comment.line, 1, comment.line + 1, 1)


def _read(path: str, comment: Comment) -> Iterator[_Read]:
    for pattern in (_OURS, _NOQA):
        for match in pattern.finditer(comment.text):
            ours = pattern is _OURS
            codes = tuple(code for code in re.split(r"[\s,]+", match["codes"] or "") if code)
            codes = tuple(code.upper() if _CODE.fullmatch(code.upper()) else code for code in codes)
            codes = codes if ours else tuple(filter(_CODE.fullmatch, codes))
            text = match[0].rstrip()
            column = comment.column + match.start() + 1
            place = Place(path, comment.line, column, comment.line, column + len(text))
            if ours or codes:
                listed = not ours or bool(match["list"])
                closed = not ours or not match["list"] or bool(match["end"])
                yield _Read(match["word"].lower() if ours else "noqa", codes, listed, closed, place, text)


def _span(read: _Read, line: Logical) -> tuple[int, int]:
    if read.word == "file-ignore":
        return 1, _END
    if read.word == "noqa" and read.place.line < line.first:  # other tools read a noqa on its own line so
        return read.place.line, read.place.line
    return line.first, line.last


def _refusal(read: _Read, known: Collection[str]) -> str:
    """Return why a comment is refused; nothing for a good one, and for prose that is none of ours."""
    if read.word == "noqa":
        unknown = [code for code in read.codes if code not in known]
    elif read.word in _WORDS:
        if not read.closed:
            return f"`# allranks: {read.word}[` has no `]` after its codes, so it has no effect"
        if not read.codes:
            return f"`# allranks: {read.word}` names no code, so it has no effect"
        unknown = [code for code in read.codes if code not in known]
    else:
        near = get_close_matches(read.word, _WORDS, n=1, cutoff=0.7)
        return f"`# allranks: {read.word}` is unknown; `{near[0]}` is" if near and read.listed else ""
    if not unknown:
        return ""
    near = get_close_matches(unknown[0], known, n=1, cutoff=0.7)
    hint = f"; is {near[0]} meant?" if near and _CODE.fullmatch(unknown[0]) else ""
    return f"No rule is called {', '.join(unknown)}{hint}"
