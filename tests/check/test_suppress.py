"""Comments that suppress findings: which, where, and those that are refused or unused."""

from __future__ import annotations

import pytest

from allranks.check.results.mend import edited
from allranks.check.results.suppress import MENTION, hits, suppressions, unused
from allranks.findings import Finding, Place

KNOWN = {"AR101", "AR102", "AR201", "AR901"}


def finding(code: str, line: int) -> Finding:
    return Finding(code, "a-fault", "error", "m", Place("a.py", line, 5, line, 9), "a", "", "")


def left(text: str, *findings: tuple[str, int]) -> list[tuple[str, int]]:
    """The findings that the comments of a text leave."""
    by, _ = suppressions("a.py", text, KNOWN)
    return [one for one in findings if not hits(finding(*one), by)]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("x = 1\nsave(x)  # allranks: ignore[AR101] rank 0 only\nsave(x)\n", {2}),
        ("x = 1\n# allranks: ignore[AR101] why\nsave(\n    x,\n)\nsave(x)\n", {3, 4, 5}),
        ("x = 1\nsave(\n    x,  # allranks: ignore[AR101]\n)\nsave(x)\n", {2, 3, 4}),
        ("# allranks: ignore[AR101]\n\n# another comment\nsave(x)\n", {4}),
        ("# allranks: ignore[AR101]\nif rank == 0:\n    save(x)\n", {2}),
        ("save(x)  # noqa: E501,AR101\nsave(x)\n", {1}),
        ("save(x)  # noqa:AR101 ar201\n", {1}),
        ("# noqa: AR101\nsave(x)\n", {1}),
        ("save(x)  # type: ignore  # allranks: ignore[AR102, AR101]\n", {1}),
        ("x = 1\nsave(x)\n# allranks: file-ignore[AR101] data preparation\n", {1, 2, 3}),
        ("text = '# allranks: ignore[AR101]'\nsave(x)  # noqa\n", set()),
        ("save(x)  # allranks: ignore[AR102]\n", set()),
        ("x = 1\r\nsave(x)  # allranks: ignore[AR101]\r\n", {2}),
    ],
)
def test_a_comment_is_about_its_statement(text: str, lines: set[int]) -> None:
    """At its end, in it, or above it; of a compound statement its head; with file-ignore the file."""
    asked = [("AR101", line) for line in range(1, text.count("\n") + 1)]
    assert left(text, *asked) == [one for one in asked if one[1] not in lines]


@pytest.mark.parametrize(
    ("comment", "says"),
    [
        ("# allranks: ignore", "names no code"),
        ("# allranks: ignore[]", "names no code"),
        ("# allranks: file-ignore all of it", "names no code"),
        ("# allranks: ignore[AR1]", "No rule is called AR1"),
        ("# allranks: ignore[ALL]", "No rule is called ALL"),
        ("# allranks: ignore[AR101, AR999]", "No rule is called AR999"),
        ("# allranks: ignore[ungated-checkpoint-write]", "No rule is called ungated-checkpoint-write"),
        ("# allranks: ingore[AR101]", "`ignore` is"),
        ("# allranks: fileignore[AR101]", "`file-ignore` is"),
        ("# noqa: AR111", "is AR101 meant?"),
    ],
)
def test_a_blanket_or_misspelt_comment_is_refused(comment: str, says: str) -> None:
    """And suppresses nothing."""
    by, refused = suppressions("a.py", f"save(x)  {comment}\n", KNOWN)
    assert by == ()
    assert [one.code for one in refused] == ["AR902"]
    assert says in refused[0].message
    assert refused[0].place.column == 10


@pytest.mark.parametrize(
    "text", ["# noqa", "# noqa: E501", "# allranks: the ranks", "x = 1  # allranks:", "# type: ignore"]
)
def test_other_comments_are_left_as_they_are(text: str) -> None:
    assert suppressions("a.py", f"{text}\n", KNOWN) == ((), ())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1  # allranks: ignore[AR101] old\n", "x = 1\n"),
        ("# allranks: ignore[AR101]\nx = 1\n", "x = 1\n"),
        ("x = 1  # allranks: ignore[AR102, AR101] why\n", "x = 1  # allranks: ignore[AR102] why\n"),
        ("x = 1  # noqa: E501, AR101\n", "x = 1  # noqa: E501\n"),
        ("x = 1  # noqa: AR101\r\ny = 2\r\n", "x = 1\r\ny = 2\r\n"),
        ("x = 1  # allranks: ignore[AR101] old # see issue 5\n", "x = 1  # see issue 5\n"),
        ("x = 1  # allranks: ignore[AR101]", "x = 1"),
    ],
)
def test_an_unused_code_is_removed_by_its_fix(before: str, after: str) -> None:
    """AR102 is used; the comment goes with its last code, the line with the comment."""
    by, _ = suppressions("a.py", before, KNOWN)
    (found,) = unused(by, hits(finding("AR102", 1), by), KNOWN)
    assert found.code == "AR901"
    assert edited(before, found.fix.edits) == after


def test_codes_of_rules_that_did_not_run_are_not_called_unused() -> None:
    by, _ = suppressions("a.py", "x = 1  # allranks: ignore[AR101]\n", KNOWN)
    assert list(unused(by, set(), {"AR102"})) == []


def test_files_without_a_mention_need_not_be_read() -> None:
    """The quick look at the bytes sees every comment that counts."""
    assert MENTION.search(b"x = 1  # allranks: ignore[AR101]")
    assert MENTION.search(b"x = 1  # NoQA: E501,ar101")
    assert not MENTION.search(b"x = 1  # noqa: E501")


def test_a_list_without_its_end_is_refused() -> None:
    by, refused = suppressions("a.py", "save(x)  # allranks: ignore[AR101 not here\n", KNOWN)
    assert by == ()
    assert "no `]`" in refused[0].message


def test_case_does_not_matter() -> None:
    by, refused = suppressions("a.py", "save(x)  # Allranks: Ignore[ar101] not here\n", KNOWN)
    assert ([one.codes for one in by], refused) == ([("AR101",)], ())
