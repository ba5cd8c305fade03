"""Fixes made in memory until none is left to make: never a text that does not parse. Pure."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from allranks.check.kept import Judged
from allranks.check.results.edit import by_path, compatible, edited
from allranks.check.sources.source import Unreadable, decode, parse
from allranks.findings import Fix

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
