"""Plain tables."""

from __future__ import annotations

import pytest

from allranks.report import display_width, format_table


def test_numbers_stand_right_and_words_left() -> None:
    """With their units and headers; None is a dash; no blanks at line ends."""
    rows = [(0, "a", 0, "1.5 s", "127 MB"), (10, "bb", None, "12.25 s", "9 MB")]
    assert format_table(["rank", "host", "exit", "wall", "peak"], rows) == (
        "rank  host  exit     wall    peak\n"
        "----  ----  ----  -------  ------\n"
        "   0  a        0    1.5 s  127 MB\n"
        "  10  bb       -  12.25 s    9 MB"
    )


@pytest.mark.parametrize(
    ("cells", "right"),
    [
        (["1", "-2.5", "+3e-05"], True),
        (["1,000", "12 %", "3.5x", "15 us/line"], True),
        (["1", "", "-"], True),
        (["", "-"], False),
        (["1", "killed by SIGKILL"], False),
        (["0-3", "5"], False),
        (["3 of 4", "1"], False),
        (["10.0.0.1 a b", "1"], False),
    ],
)
def test_a_column_is_numeric_when_all_its_cells_are(cells: list[str], right: bool) -> None:
    """Empty cells and dashes go with either."""
    lines = format_table(["a wide header"], [[cell] for cell in cells]).splitlines()
    assert lines[2].startswith(" ") == right


def test_wide_characters_keep_columns_straight() -> None:
    """Columns of a terminal, not characters; an indent stands before every line."""
    assert display_width("日本e\u0301") == 5
    assert format_table(["a", "b"], [["日本", "x"], ["y", "z"]], indent="  ") == (
        "  a     b\n  ----  -\n  日本  x\n  y     z"
    )
    assert format_table(["a", "b"], []) == "a  b\n-  -"


def test_a_row_of_another_length_is_an_error() -> None:
    """Rather than a table that shifts."""
    with pytest.raises(ValueError, match="1 cells under 2 headers"):
        format_table(["a", "b"], [["x"]])
