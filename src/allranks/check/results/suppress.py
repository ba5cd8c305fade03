"""Comments that suppress findings, the ones that suppress nothing (AR901) and the ones refused (AR902). Pure.

``# allranks: ignore[AR101] reason`` at the end of a statement, or on a line of its own above one, is about that whole
statement (of a compound one: its head). ``# allranks: file-ignore[AR101] reason`` is about the file. ``# noqa: AR101``
is understood; what else stands in a noqa is other tools'. A comment names its codes: blanket forms are refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from allranks.check.registry import all_rules
from allranks.check.retired import CODES as RETIRED
from allranks.check.rules.ar901_unused_suppression import UnusedSuppression
from allranks.check.rules.ar902_invalid_suppression import InvalidSuppression
from allranks.check.sources.globs import matches
from allranks.check.sources.logical import Comment, Logical, logical_lines, split_lines
from allranks.check.sources.scripts import is_text
from allranks.check.sources.source import Unreadable, decode, module_name
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


class Accepted:
    """The findings that a project does not want to see: its comments say so, or ``ignores`` (glob, selectors of codes),
    its settings. ``sources``: the bytes of its files. ``retired``: codes of rules that are no more, in comments."""

    def __init__(self, sources: Mapping[str, bytes], ignores: Iterable[tuple[str, Sequence[str]]]) -> None:
        self._ignores = tuple(ignores)
        self._by: dict[str, tuple[Suppression, ...]] = {}
        self._refused: list[Finding] = []
        known = {*(rule.code for rule in all_rules()), *RETIRED}
        for path, raw in sources.items():
            text = decode(raw) if MENTION.search(raw) and not is_text(path) else Unreadable("")
            if not isinstance(text, Unreadable):  # scripts: a comment is obeyed where they are read
                self._by[path], refused = suppressions(path, text, known)
                self._refused += refused
        named = {code for by in self._by.values() for one in by for code in one.codes}
        self.retired = tuple(sorted(named & RETIRED))

    def among(self, findings: Iterable[Finding]) -> set[Finding]:
        """Return those of the findings that are not to be shown."""
        findings = tuple(findings)
        return self.by_comments(findings) | self.by_settings(findings)

    def by_comments(self, findings: Iterable[Finding]) -> set[Finding]:
        return {finding for finding in findings if hits(finding, self._by.get(finding.place.path, ()))}

    def by_settings(self, findings: Iterable[Finding]) -> set[Finding]:
        return {finding for finding in findings if self._is_ignored(finding)}

    def about_comments(self, findings: Iterable[Finding], ran: Collection[str]) -> Iterator[Finding]:
        """Yield findings about comments: those that are refused, and those that suppress none of the ``findings`` of
        rules that ``ran``."""
        yield from self._refused
        used = {hit for finding in findings for hit in hits(finding, self._by.get(finding.place.path, ()))}
        for by in self._by.values():
            yield from unused(by, used, ran)

    def _is_ignored(self, finding: Finding) -> bool:
        return any(
            matches((glob,), finding.place.path)
            for glob, selectors in self._ignores
            if any(word == "ALL" or finding.code.startswith(word) for word in selectors)
        )


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


def hits(finding: Finding, by: Iterable[Suppression]) -> set[tuple[Place, str]]:
    """Return which codes of which comments of its file suppress a finding."""
    line, code = finding.place.line, finding.code
    return {(one.comment, code) for one in by if code in one.codes and one.first <= line <= one.last}


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
