"""Findings that a project lives with: known by what they are about, so that they survive moves of lines. Pure.

A fingerprint is of code, qualified function and statement (its tokens, without layout and comments). Equal statements
in one function share a fingerprint, which the baseline counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from allranks.check.sources.logical import logical_lines
from allranks.errors import AllranksError
from allranks.findings import Finding

VERSION = 1


class BaselineUnreadable(AllranksError):
    """A file is given as a baseline, and is none."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """How many findings of each fingerprint are known. ``entries``: what the file says of them."""

    known: Mapping[str, int]
    entries: tuple[Mapping[str, Any], ...] = ()


def fingerprints(findings: Iterable[Finding], texts: Mapping[str, str]) -> dict[Finding, str]:
    """Return the fingerprint of each finding. ``texts``: the files that they are in."""
    statements: dict[str, list[tuple[int, int, str]]] = {}
    prints: dict[Finding, str] = {}
    for finding in findings:
        path, line = finding.place.path, finding.place.line
        if path not in statements:
            statements[path] = [(one.first, one.last, one.text) for one in logical_lines(texts.get(path, ""))]
        text = next((text for first, last, text in statements[path] if first <= line <= last), "")
        what = "\0".join((finding.code, finding.symbol or path, text))
        prints[finding] = blake2b(what.encode(errors="surrogatepass"), digest_size=12).hexdigest()
    return prints


def unknown(findings: Iterable[Finding], prints: Mapping[Finding, str], baseline: Baseline) -> tuple[Finding, ...]:
    """Return the findings that the baseline does not know, in order."""
    left = Counter(baseline.known)
    new: list[Finding] = []
    for finding in findings:
        if left[prints[finding]] > 0:
            left[prints[finding]] -= 1
        else:
            new.append(finding)
    return tuple(new)


def written(findings: Iterable[Finding], prints: Mapping[Finding, str], kept: Iterable[Mapping[str, Any]] = ()) -> str:
    """Return the text of a baseline file, the same for the same findings: one line a finding, for diffs and merges.

    ``kept``: entries of an older one that stay.
    """
    entries: dict[str, dict[str, Any]] = {entry["fingerprint"]: dict(entry) for entry in kept}
    for finding in sorted(findings, key=lambda finding: (finding.place, finding.code)):
        fingerprint = prints[finding]
        entry = {"code": finding.code, "path": finding.place.path, "symbol": finding.symbol, "count": 0}
        entries.setdefault(fingerprint, {"fingerprint": fingerprint, **entry})["count"] += 1
    rows = sorted(entries.values(), key=lambda entry: (entry["path"], entry["code"], entry["fingerprint"]))
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    return (
        f'{{"version": {VERSION}, "findings": [\n{lines}\n]}}\n'
        if rows
        else f'{{"version": {VERSION}, "findings": []}}\n'
    )


def read(text: str, where: str) -> Baseline:
    """Return the baseline of a file's text. Raises BaselineUnreadable, naming ``where``."""
    remedy = "write it again with --write-baseline"
    try:
        found = json.loads(text)
        if found["version"] != VERSION:
            raise BaselineUnreadable(f"{where}: a baseline of version {found['version']}, not {VERSION}; {remedy}")
        entries = tuple(found["findings"])
        names = ("code", "path", "symbol")
        if not all(isinstance(entry[name], str) for entry in entries for name in names):
            raise TypeError(f"{', '.join(names)} must be texts")
        return Baseline({str(entry["fingerprint"]): int(entry["count"]) for entry in entries}, entries)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BaselineUnreadable(
            f"{where}: no baseline of allranks ({type(error).__name__}: {error}); {remedy}"
        ) from error
