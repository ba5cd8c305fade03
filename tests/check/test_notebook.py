"""Notebooks: the code of all cells as one file."""

from __future__ import annotations

import ast
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.check.sources.notebook import Notebook, notebook
from allranks.report.base import Cell


def code(*cells: str | list[str], **more) -> Notebook | str:
    document = {"cells": [{"cell_type": "code", "source": cell} for cell in cells], "metadata": {}, **more}
    return notebook(json.dumps(document).encode())


def test_cells_become_one_file_whose_lines_know_their_cell() -> None:
    """Numbers count all cells, as a person does; text cells hold no code."""
    raw = {
        "cells": [
            {"cell_type": "markdown", "source": "# Title"},
            {"cell_type": "code", "source": ["import os\n", "x = 1"]},
            {"cell_type": "code", "source": "y = 2\n"},
        ]
    }
    assert notebook(json.dumps(raw).encode()) == Notebook("import os\nx = 1\ny = 2\n\n", (Cell(2, 1), Cell(3, 3)))


@pytest.mark.parametrize(
    "line", ["%matplotlib inline", "!pip install x", "files = !ls", "model?", "  %time f()", "?f", "f??"]
)
def test_commands_of_the_notebook_are_not_python_and_take_no_line_away(line: str) -> None:
    found = code(f"if True:\n{line}\n  x = 1" if line.startswith(" ") else f"{line}\nx = 1")
    assert isinstance(found, Notebook)
    ast.parse(found.code)
    assert found.code.splitlines()[-1].strip() == "x = 1"


def test_cells_and_notebooks_in_other_languages_are_left_out() -> None:
    """A timed cell is Python."""
    assert code("%%bash\nls", "%%time\nx = 1") == Notebook("pass\nx = 1\n", (Cell(2, 1),))
    assert code("x <- 1", metadata={"kernelspec": {"language": "R"}}) == Notebook("", ())


def test_an_operator_at_the_end_is_no_question() -> None:
    """`%` and `?` within a line of Python stay."""
    assert code("x = 5 % 3\nname = '?'") == Notebook("x = 5 % 3\nname = '?'\n", (Cell(1, 1),))


@given(st.one_of(st.binary(), st.text('[]{}"cells:,1 ').map(str.encode)))
def test_what_is_no_notebook_is_said(raw: bytes) -> None:
    """Whatever the bytes are."""
    found = notebook(raw)
    assert isinstance(found, Notebook) or found.startswith("no notebook")
