"""Baselines: what a project lives with stays hidden, what is new is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.check.results.baseline import BaselineUnreadable, fingerprints, read, unknown, written
from allranks.findings import Finding, Place

TEXT = "def f():\n    save(x, y)\n    save(x, y)\n    if rank:\n        save(z)\n"
A = Finding("AR101", "a-fault", "error", "m", Place("a.py", 2, 5, 2, 9), "a.f", "", "")
B = replace(A, place=Place("a.py", 3, 5, 3, 9))


def prints(text: str, *findings: Finding) -> list[str]:
    found = fingerprints(findings, {"a.py": text})
    return [found[finding] for finding in findings]


@given(st.integers(0, 30), st.sampled_from(["save(x,y)", "save(x,\n  # why\n  y)", "save( x , y )  # noqa"]))
def test_lines_layout_and_comments_do_not_change_a_fingerprint(above: int, statement: str) -> None:
    """The statement is the same, so the finding is known."""
    text = "\n" * above + f"def f():\n    {statement}\n"
    assert prints(text, replace(A, place=Place("a.py", above + 2, 5, above + 2, 9))) == prints(TEXT, A)


def test_code_function_and_statement_tell_findings_apart() -> None:
    others = [replace(A, code="AR102"), replace(A, symbol="a.g"), replace(A, place=Place("a.py", 5, 9, 5, 13))]
    assert len({*prints(TEXT, A, *others)}) == 4


def test_equal_statements_are_counted() -> None:
    """Two are known; a third is new."""
    known = fingerprints([A, B], {"a.py": TEXT})
    baseline = read(written([A, B], known), "b.json")
    third = replace(A, place=Place("a.py", 6, 5, 6, 9))
    now = fingerprints([A, B, third], {"a.py": TEXT + "    save(x, y)\n"})
    assert unknown([A, B], now, baseline) == ()
    assert unknown([A, B, third], now, baseline) == (third,)


def test_a_baseline_is_one_line_a_finding_and_the_same_every_time() -> None:
    """So that it is read, merged and compared by git."""
    known = fingerprints([A, B, replace(A, code="AR102")], {"a.py": TEXT})
    text = written(list(known), known)
    assert text == written(reversed(list(known)), known)
    assert text.count("\n") == 4
    assert read(written([], {}), "b.json").known == {}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 2, "findings": []}', '{"version": 1, "findings": [3]}'])
def test_what_is_no_baseline_is_named(text: str) -> None:
    with pytest.raises(BaselineUnreadable, match=r"b\.json: .*--write-baseline"):
        read(text, "b.json")
