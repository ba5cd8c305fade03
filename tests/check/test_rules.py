"""Every rule against its own examples, which are also what its page shows."""

from __future__ import annotations

import re

import pytest

from allranks.check.engine import Settings, check
from allranks.check.registry import all_rules
from allranks.check.rule import Example, Rule
from allranks.findings import ROWS

SECTIONS = ("What it does", "Why is this bad", "What happens with N processes", "Known problems", "Use instead")
BAD = [pytest.param(r, Example.of(text), id=f"{r.code}-{n}") for r in all_rules() for n, text in enumerate(r.bad)]
GOOD = [pytest.param(r, Example.of(text), id=f"{r.code}-{n}") for r in all_rules() for n, text in enumerate(r.good)]


def found(rule: Rule, example: Example) -> list[tuple[str, int]]:
    sources = {path: text.encode() for path, text in example.files.items()}
    outcome = check(sources, Settings(select=(rule.code,)))
    return [(f.place.path, f.place.line) for f in outcome.findings]


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_a_bad_example_is_found_where_it_says(rule: Rule, example: Example) -> None:
    """Found at exactly the lines named, and nowhere else."""
    if rule.code not in ("AR901", "AR902"):  # the face reports these
        assert found(rule, example) == [*example.found]


@pytest.mark.parametrize(("rule", "example"), GOOD)
def test_a_good_example_is_silent(rule: Rule, example: Example) -> None:
    """What the rule must not say is said by its good examples."""
    assert found(rule, example) == []


@pytest.mark.parametrize("rule", all_rules(), ids=lambda r: r.code)
def test_a_rule_is_documented(rule: Rule) -> None:
    """Code, name, row and every section of its page."""
    assert re.fullmatch(r"AR\d{3}", rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rule.name)
    assert rule.row in ROWS
    assert rule.bad
    assert rule.good
    page = type(rule).__doc__ or ""
    assert [s for s in SECTIONS if f"## {s}" not in page] == []
    module = type(rule).__module__.rpartition(".")[2]
    assert module == f"{rule.code.lower()}_{rule.name.replace('-', '_')}"
