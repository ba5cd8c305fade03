"""Excerpts of source: the marks stand under what they mark."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from allranks.findings import Place
from allranks.report.base import Source, visible
from allranks.report.columns import display_width
from allranks.report.excerpt import WIDE, Mark, marked_excerpt
from allranks.report.ink import make_painter

PLAIN = make_painter(False)
LETTERS = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp"))


def shown(text: str, *marks: Mark) -> list[str]:
    return marked_excerpt(Source(tuple(text.split("\n"))), marks, 2, PLAIN)


@given(before=st.text(LETTERS, max_size=20), marked=st.text("abc名", min_size=1, max_size=9), after=st.text(LETTERS))
def test_carets_stand_under_the_span(before: str, marked: str, after: str) -> None:
    """As wide as the text is on a terminal, whatever stands before it."""
    start = len(before) + 1
    _, _, carets, _ = shown(
        f"{before}{marked}{after}", Mark(Place("a", 1, start, 1, start + len(marked)), primary=True)
    )
    assert carets == "   | " + " " * display_width(visible(before)) + "^" * display_width(marked)


def test_wide_letters_and_tabs_are_counted_as_the_terminal_shows_them() -> None:
    assert shown("\t名前(x)", Mark(Place("a", 1, 5, 1, 6), primary=True))[1:3] == [
        " 1 |     名前(x)",
        "   |          ^",
    ]


def test_a_long_line_is_cut_around_the_span() -> None:
    """What is left out is shown by dots; the span can be seen."""
    text = "x" * 500 + "FAULT" + "y" * 500
    _, source, carets, _ = shown(text, Mark(Place("a", 1, 501, 1, 506), primary=True))
    at = carets.index("^")
    assert source[at : at + 5] == "FAULT"
    assert source.startswith(" 1 | ...x")
    assert source.endswith("y...")
    assert len(source) < WIDE + 20


def test_a_span_of_many_lines_is_cut_and_labelled_once() -> None:
    """Four lines of it are marked; lines between far spans are left out."""
    text = "\n".join(f"line {n}" for n in range(1, 31))
    lines = shown(text, Mark(Place("a", 3, 1, 12, 5), "here"), Mark(Place("a", 30, 1, 30, 5), primary=True))
    assert sum("------" in line for line in lines) == 4
    assert [line for line in lines if "here" in line] == ["   | ------ here"]
    assert "..." in lines
    assert lines[-2] == "   | ^^^^"


def test_a_span_past_the_end_is_shown_where_the_text_ends() -> None:
    """The parser names such places for files that end too early."""
    assert shown("x = (", Mark(Place("a", 1, 6, 1, 7), primary=True))[2] == "   |      ^"
    assert shown("x", Mark(Place("a", 9, 1, 9, 2), primary=True)) == ["   |", "   |"]
