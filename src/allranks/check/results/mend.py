"""Fixes: which can be made together, what the text is then, and all of them made until none is left. Pure."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import unified_diff

from allranks.check.kept import Judged
from allranks.check.sources.logical import split_lines
from allranks.check.sources.source import Unreadable, decode, parse
from allranks.findings import Edit, Finding, Fix, Place

ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Mended:
    """The files that changed, how many fixes were made, and what is found then. ``refused``: would not parse."""

    changed: Mapping[str, bytes]
    fixes: int
    judged: Judged
    refused: tuple[Fix, ...] = ()


def mend(files: Mapping[str, bytes], judge: Callable[[Mapping[str, bytes]], Judged], *, unsafe: bool = False) -> Mended:
    """Make the fixes of what ``judge`` finds, judge again, at most ROUNDS times. (`judge.judge` promises no
    fix in notebooks and scripts.)"""
    now = dict(files)
    made = 0
    refused: list[Fix] = []
    judged = judge(now)
    for _ in range(ROUNDS):
        mendable = [f for f in judged.findings if f.fix not in refused]
        fixes = compatible(mendable, unsafe=unsafe)
        done = _make(fixes, now, refused)
        if not done:
            break
        made += done
        judged = judge(now)
    changed = {path: raw for path, raw in now.items() if raw != files[path]}
    return Mended(changed, made, judged, tuple(refused))


def _make(fixes: tuple[Fix, ...], files: dict[str, bytes], refused: list[Fix]) -> int:
    """Make the fixes in ``files`` and return how many. Those with which the text would not parse go to ``refused``."""
    good, after = list(fixes), _after(fixes, files)
    if after is None:
        good, after = [], {}
        for fix in fixes:
            more = _after((*good, fix), files)
            if more is None:
                refused.append(fix)
            else:
                good, after = [*good, fix], more
    files.update(after)
    return len(good)


def _after(fixes: Iterable[Fix], files: Mapping[str, bytes]) -> dict[str, bytes] | None:
    """Return the files that fixes change, as they are then; None if one of them is no Python then."""
    after: dict[str, bytes] = {}
    for path, edits in by_path(fixes).items():
        text = decode(files[path]) if path in files else Unreadable("not among the files")
        if isinstance(text, Unreadable):
            return None
        text = edited(text, edits)
        raw = encode(text, files[path])
        if raw is None or isinstance(parse(text), Unreadable):
            return None
        after[path] = raw
    return after


def encode(text: str, like: bytes) -> bytes | None:
    """Return the text encoded as the bytes ``like`` are, with their byte-order mark; None if that lacks a letter."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(like).readline)
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        return None


def compatible(findings: Iterable[Finding], *, unsafe: bool = False) -> tuple[Fix, ...]:
    """Return the fixes that can be made at once, in order of place; of two that touch, the later one waits.

    A fix that two findings have is made once. ``unsafe``: also those that may change what the program does.
    """
    chosen: list[Fix] = []
    taken: list[Edit] = []
    for finding in sorted(findings, key=lambda finding: (finding.place, finding.code)):
        fix = finding.fix
        if fix is None or not fix.edits or not (fix.safe or unsafe) or fix in chosen:
            continue
        if any(_touch(mine.place, other.place) for mine in fix.edits for other in taken) or _entangled(fix):
            continue
        chosen.append(fix)
        taken += fix.edits
    return tuple(chosen)


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return the text with all edits made, from the last to the first. They must not overlap.

    Line ends within the edits become those of the text.
    """
    lines = split_lines(text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    end_of_line = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    for edit in sorted(edits, key=lambda edit: edit.place, reverse=True):
        place = edit.place
        start, stop = (_offset(starts, *at) for at in ((place.line, place.column), (place.end_line, place.end_column)))
        text = text[:start] + edit.text.replace("\n", end_of_line) + text[stop:]
    return text


def by_path(fixes: Iterable[Fix]) -> Mapping[str, tuple[Edit, ...]]:
    """Return the edits of each file."""
    files: dict[str, list[Edit]] = {}
    for fix in fixes:
        for edit in fix.edits:
            files.setdefault(edit.place.path, []).append(edit)
    return {path: tuple(edits) for path, edits in files.items()}


def diff(path: str, before: str, after: str) -> str:
    """Return a unified diff that ``patch`` and ``git apply`` take; nothing for equal texts."""
    shown = []
    for line in unified_diff(split_lines(before), split_lines(after), f"a/{path}", f"b/{path}"):
        shown.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(shown)


def _offset(starts: list[int], line: int, column: int) -> int:
    return min(starts[min(line, len(starts)) - 1] + column - 1, starts[-1])


def _touch(a: Place, b: Place) -> bool:
    """Whether two spans share text, or an insertion stands where another edit begins or inserts."""
    if a.path != b.path:
        return False
    first, second = sorted(((a.line, a.column), (a.end_line, a.end_column)) for a in (a, b))
    return second[0] < first[1] or second[0] == first[0]


def _entangled(fix: Fix) -> bool:
    edits = fix.edits
    return any(_touch(a.place, b.place) for at, a in enumerate(edits) for b in edits[at + 1 :])
