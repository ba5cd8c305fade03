"""Sources in, findings out. Pure: whoever calls it reads the files and keeps the cache."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from allranks.check.registry import all_rules, rule, selected
from allranks.check.rule import Assume, LocalRule, ProgramRule
from allranks.check.source import File, Unreadable, decode, module_name, parse
from allranks.findings import Finding, Place, Row


class Cache(Protocol):
    """Bytes by key; whatever it loses is computed again."""

    def get(self, key: bytes) -> bytes | None: ...
    def put(self, key: bytes, value: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user says about the project. Names are qualified (``utils.is_chief``); entries and paths are globs."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    assume: Assume = "auto"
    entries: tuple[str, ...] = ()
    rank_zero_predicates: tuple[str, ...] = ()
    collectives: tuple[str, ...] = ()
    shared_paths: tuple[str, ...] = ()
    node_local_paths: tuple[str, ...] = ()

    def codes(self) -> frozenset[str]:
        """Return the codes of the rules that run: those selected, or all that run by default."""
        rules = all_rules()
        chosen = tuple(r.code for r in rules if r.default) if self.select is None else self.select
        return selected(tuple(r.code for r in rules), (*chosen, *self.extend_select), self.ignore)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found, by place and code; suppressions are not applied yet. ``files`` and ``lines`` were looked at."""

    findings: tuple[Finding, ...]
    rows: tuple[Row, ...]
    files: int
    lines: int


def check(sources: Mapping[str, bytes], settings: Settings, *, cache: Cache | None = None) -> Outcome:
    """Check the Python files ``sources`` (path from the project's root -> bytes)."""
    del cache  # takes part with the summaries
    codes = settings.codes()
    findings: list[Finding] = []
    lines = 0
    for path in sorted(sources):
        text = decode(sources[path])
        tree = text if isinstance(text, Unreadable) else parse(text)
        lines += sources[path].count(b"\n")
        if isinstance(tree, Unreadable) or isinstance(text, Unreadable):
            findings.append(_unreadable(path, tree if isinstance(tree, Unreadable) else Unreadable("")))
            continue
        findings.extend(_local(File(path, text, tree)))
    found = sorted((f for f in findings if f.code in codes), key=lambda f: (f.place, f.code))
    return Outcome(tuple(found), (), len(sources), lines)


def _unreadable(path: str, why: Unreadable) -> Finding:
    meta = rule("AR900")
    if meta is None:
        raise RuntimeError("rule AR900 is missing from the package of rules")
    place = Place(path, why.line, why.column, why.line, why.column + 1)
    return meta.finding(place, module_name(path), why.reason)


def _local(file: File) -> list[Finding]:
    import_free = [r for r in all_rules() if isinstance(r, LocalRule) and any(w in file.text for w in r.words)]
    return [f for r in import_free for f in _visit(r, file)]


def _visit(local: LocalRule, file: File) -> list[Finding]:
    return [f for node in ast.walk(file.tree) if isinstance(node, local.nodes) for f in local.visit(node, file)]


def program_rules() -> tuple[ProgramRule, ...]:
    return tuple(r for r in all_rules() if isinstance(r, ProgramRule))
