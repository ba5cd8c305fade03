"""Implement ``allranks explain AR101``: show a rule's page, or a table of several rules."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from allranks.check.registry import all_rules
from allranks.check.results.page import facts, page, retired_page, summary
from allranks.check.retired import Retired, retired
from allranks.check.rule import Rule
from allranks.failure import one_line
from allranks.rehearse.judge import KINDS
from allranks.rehearse.judge.base import Kind
from allranks.report.columns import format_table

WIDTH = 90


def explain(names: Sequence[str], *, as_json: bool) -> int:
    """Print the rules with these codes, prefixes of codes, or names, also those that are retired or that a rehearsal
    alone reports; without names, all rules that run. Return the exit code."""
    chosen: list[Rule] = []
    seen: list[Kind | Retired] = []
    words = [part for name in names for part in name.split(",")]
    for word in words or ("AR",):
        code = word.upper()
        kind = next((one for one in KINDS if word in (one.name, one.code) or code == one.code), None)
        if (other := kind or retired(code) or retired(word)) is not None:
            seen.append(other)
            continue
        found = [rule for rule in all_rules() if rule.name == word or rule.code.startswith(code)]
        if not found:
            known = [text for rule in all_rules() for text in (rule.code, rule.name)]
            near = get_close_matches(code, known, n=1) or get_close_matches(word, known, n=1)
            hint = f" Is {near[0]} meant?" if near else ""
            print(f"allranks explain: {one_line(word)}: no such file or rule.{hint}", file=sys.stderr)
            return 2
        chosen += [rule for rule in found if rule not in chosen]
    for one in seen:
        print(f"{retired_page(one) if isinstance(one, Retired) else _rehearsed(one)}\n")
    if seen and not chosen:
        return 0
    if as_json:
        print(json.dumps([_document(rule) for rule in chosen], indent=1))
    elif len(chosen) <= len(words):
        print("\n\n".join(page(rule).rstrip() for rule in chosen))
    else:
        rows = [(rule.code, rule.severity, "" if rule.default else "off", rule.name) for rule in chosen]
        print(format_table(("code", "severity", "", "name"), rows))
    return 0


def _rehearsed(kind: Kind) -> str:
    return f"# {kind.code} {kind.name}\n\nSeen by `allranks rehearse` alone.\n\n{kind.cluster}\n\n{kind.advice}"


def _document(rule: Rule) -> dict[str, Any]:
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity,
        "default": rule.default,
        "row": rule.row,
        "summary": summary(rule),
        "facts": facts(rule),
        "page": page(rule),
    }
