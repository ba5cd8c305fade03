"""Fixes as edits of text."""

from __future__ import annotations

import ast

from hypothesis import given
from hypothesis import strategies as st

from allranks.check.kept import Judged
from allranks.check.results.mend import ROUNDS, by_path, compatible, diff, edited, mend
from allranks.check.sources.logical import split_lines
from allranks.findings import Edit, Finding, Fix, Place


def place(line: int, column: int, end_line: int, end_column: int, path: str = "a.py") -> Place:
    return Place(path, line, column, end_line, end_column)


def finding(*edits: Edit, safe: bool = True) -> Finding:
    return Finding("AR101", "a-fault", "error", "m", edits[0].place, "a", "", "", fix=Fix("mend it", edits, safe))


@given(st.data())
def test_edits_are_independent_of_each_other(data: st.DataObject) -> None:
    """Compared with a plain cut at offsets; line ends of all kinds, and none at the end."""
    text = data.draw(st.text("ab\n\r\x0c名", max_size=40))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6, unique=True)))
    cuts = [cut for cut in cuts if not (0 < cut < len(text) and text[cut - 1 : cut + 1] == "\r\n")]
    spans = list(zip(cuts[::2], cuts[1::2], strict=False))
    words = [data.draw(st.text("xyz", max_size=3)) for _ in spans]
    expected, last = "", 0
    for (start, stop), word in zip(spans, words, strict=True):
        expected += text[last:start] + word
        last = stop
    expected += text[last:]

    def at(offset: int) -> tuple[int, int]:
        lines = split_lines(text[:offset])
        if not lines:
            return 1, 1
        ended = lines[-1].endswith(("\n", "\r"))
        return (len(lines) + 1, 1) if ended else (len(lines), len(lines[-1]) + 1)

    edits = [Edit(Place("a.py", *at(start), *at(stop)), word) for (start, stop), word in zip(spans, words, strict=True)]
    assert edited(text, edits) == expected


def test_inserted_line_ends_are_those_of_the_file() -> None:
    assert edited("a\r\nb\r\n", [Edit(place(2, 1, 2, 1), "x\n")]) == "a\r\nx\r\nb\r\n"


def test_of_two_fixes_that_touch_one_waits() -> None:
    """Overlaps, two insertions at one place, and a fix that overlaps itself; other files do not matter."""
    first = finding(Edit(place(1, 1, 1, 5), "x"))
    over = finding(Edit(place(1, 4, 1, 9), "y"))
    next_to = finding(Edit(place(1, 5, 1, 6), "z"))
    elsewhere = finding(Edit(place(1, 1, 1, 5, "b.py"), "x"))
    again = finding(Edit(place(1, 9, 1, 9), "p"))
    same_place = finding(Edit(place(1, 9, 1, 9), "q"))
    itself = finding(Edit(place(3, 1, 3, 4), "p"), Edit(place(3, 2, 3, 3), "q"))
    chosen = compatible([over, first, next_to, elsewhere, again, same_place, itself])
    assert chosen == (first.fix, next_to.fix, again.fix, elsewhere.fix)
    assert set(by_path(chosen)) == {"a.py", "b.py"}


def test_a_fix_that_may_change_the_program_is_made_only_if_asked_for() -> None:
    """And one that two findings share is made once."""
    unsafe = finding(Edit(place(1, 1, 1, 2), "x"), safe=False)
    assert compatible([unsafe]) == ()
    assert compatible([unsafe, unsafe], unsafe=True) == (unsafe.fix,)


def test_a_diff_can_be_applied() -> None:
    """A missing line end at the end of the file is said, as patch wants it."""
    assert diff("a.py", "x = 1\ny = 2", "x = 1\ny = 3\n") == (
        "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n x = 1\n-y = 2\n\\ No newline at end of file\n+y = 3\n"
    )
    assert diff("a.py", "x\n", "x\n") == ""


def judged(*findings: Finding) -> Judged:
    return Judged(findings, (), 1, 1, ())


def test_fixes_are_made_until_none_is_left() -> None:
    """Each round judges the text that the last one left; what is reported is what is found then."""

    def judge(files):
        text = files["a.py"].decode()
        return judged(*[finding(Edit(place(1, 1, 1, 2), ""))] if text.startswith("-") else [])

    mended = mend({"a.py": b"----1\n", "b.py": b""}, judge)
    assert mended.changed == {"a.py": b"1\n"}
    assert mended.fixes == 4
    assert mended.judged.findings == ()


def test_fixes_without_end_are_stopped() -> None:
    """A fix that its own rule finds again is made ten times, not for ever."""
    mended = mend({"a.py": b"x\n"}, lambda _: judged(finding(Edit(place(1, 1, 1, 1), "x"))))
    assert mended.changed["a.py"] == b"x" * (ROUNDS + 1) + b"\n"


def test_a_text_that_would_not_parse_is_never_left() -> None:
    """The fix that breaks it is refused and named; the others are made, places true to the text they were found in."""
    text = b"# coding: latin-1\nx = 1\ny = '\xe4'\nz = 3\n"
    good = finding(Edit(place(2, 1, 2, 1), "a = 0\n"))
    bad = finding(Edit(place(3, 5, 3, 6), ""))
    late = finding(Edit(place(4, 1, 4, 2), "w"))

    def judge(files):
        return judged(*([good, bad, late] if files["a.py"] == text else [bad]))

    mended = mend({"a.py": text}, judge)
    assert mended.changed == {"a.py": b"# coding: latin-1\na = 0\nx = 1\ny = '\xe4'\nw = 3\n"}
    assert mended.refused == (bad.fix,)
    ast.parse(mended.changed["a.py"])


def test_a_letter_that_the_encoding_lacks_refuses_the_fix() -> None:
    name = finding(Edit(place(2, 1, 2, 2), "名"))
    mended = mend({"a.py": b"# coding: latin-1\nx = 1\n"}, lambda _: judged(name))
    assert mended.changed == {}
    assert mended.refused == (name.fix,)


def test_a_byte_order_mark_stays() -> None:
    mended = mend({"a.py": b"\xef\xbb\xbfx = 1\n"}, lambda _: judged(finding(Edit(place(1, 5, 1, 6), "2"))))
    assert mended.changed == {"a.py": b"\xef\xbb\xbfx = 2\n"}
