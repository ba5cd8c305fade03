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

from allranks.check.logical import Comment, Logical, logical_lines
from allranks.findings import Edit, Finding, Fix, Place

MENTION = re.compile(rb"#[^\n]*(?:allranks:|(?i:noqa):[^\n]*AR\d)")
UNUSED, INVALID = "AR901", "AR902"
UNUSED_NAME, INVALID_NAME = "unused-suppression", "invalid-suppression"
_OURS = re.compile(r"#\s*allranks:\s*(?P<word>[a-z-]+)\s*(?P<list>\[(?P<codes>[^\]]*)\])?(?P<rest>[^#]*)")
_NOQA = re.compile(r"#\s*noqa:\s*(?P<codes>[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)", re.IGNORECASE)
_CODE = re.compile(r"AR\d{3}")
_WORDS = ("ignore", "file-ignore")


@dataclass(frozen=True, slots=True)
class Suppression:
    """Findings with one of ``codes`` that begin on lines ``first`` to ``last`` are not shown. ``comment`` is where."""

    codes: tuple[str, ...]
    first: int
    last: int
    comment: Place
    text: str


def suppressions(path: str, text: str, known: Collection[str]) -> tuple[tuple[Suppression, ...], tuple[Finding, ...]]:
    """Return the suppressions of a file, and a finding for each that is refused. ``known``: all codes there are."""
    found: list[Suppression] = []
    refused: list[Finding] = []
    for line in logical_lines(text):
        for comment, above in (*((c, True) for c in line.above), *((c, False) for c in line.inside)):
            for one in _read(path, comment, line, above=above):
                bad = _refusal(one, known)
                (refused.append(bad) if bad else found.append(one.suppression))
    return tuple(found), tuple(refused)


def suppressed(findings: Iterable[Finding], by: Iterable[Suppression]) -> tuple[list[Finding], set[tuple[Place, str]]]:
    """Return the findings of one file that stay, and which codes of which comments suppressed something."""
    kept, used = [], set()
    by = tuple(by)
    for finding in findings:
        hit = {(s.comment, finding.code) for s in by if finding.code in s.codes and s.first <= finding.place.line <= s.last}
        used |= hit
        if not hit:
            kept.append(finding)
    return kept, used


def unused(
    by: Iterable[Suppression], used: Collection[tuple[Place, str]], ran: Collection[str]
) -> Iterator[Finding]:
    """Yield AR901 for each comment with codes that suppressed nothing, of rules that ran."""
    for suppression in by:
        idle = [c for c in suppression.codes if c in ran and (suppression.comment, c) not in used]
        if not idle:
            continue
        rest = _without(suppression.text, idle) if len(idle) < len(suppression.codes) else ""
        yield Finding(
            code=UNUSED,
            name=UNUSED_NAME,
            severity="warning",
            message=f"Unused suppression: {', '.join(idle)} {'is' if len(idle) == 1 else 'are'} not found here",
            place=suppression.comment,
            symbol="",
            cluster="",
            advice="Remove it: the next fault of that kind in this statement would go unseen.",
            fix=Fix("Remove the suppression", (Edit(suppression.comment, rest),), safe=True),
        )


@dataclass(frozen=True, slots=True)
class _Read:
    suppression: Suppression
    word: str
    listed: bool
    own: bool


def _read(path: str, comment: Comment, line: Logical, *, above: bool) -> Iterator[_Read]:
    start = comment.column + 1
    for pattern in (_OURS, _NOQA):
        match = pattern.search(comment.text)
        if match is None:
            continue
        own = pattern is _OURS
        word = match["word"] if own else "noqa"
        codes = tuple(re.split(r"[\s,]+", (match["codes"] or "").strip())) if match["codes"] else ()
        if not own:
            codes = tuple(code.upper() for code in codes if _CODE.fullmatch(code.upper()))
        text = match[0].rstrip()
        place = Place(path, comment.line, start + match.start(), comment.line, start + match.start() + len(text))
        whole = word == "file-ignore"
        first = comment.line if not own and above else line.first
        first, last = (1, 1 << 30) if whole else (first, comment.line if not own and above else line.last)
        yield _Read(Suppression(codes, first, last, place, text), word, not own or bool(match["list"]), own)


def _refusal(read: _Read, known: Collection[str]) -> Finding | None:
    """Return why a comment is refused; None for a good one, and for prose that is none of ours."""
    raise NotImplementedError
