"""The text of a file that places point into: a Python file's, or the code cells of a notebook as one file. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from allranks.check.sources.source import Unreadable, decode
from allranks.report.base import Cell, Source

# Not Python, but IPython: `%time x`, `!pip install`, `x = !ls`, `model?`. `pass` in their place.
_MAGIC = re.compile(r"\s*+(?:[%!?]|[\w.]++\?{1,2}\s*$|[\w., ]++=\s*[%!])")
_OTHER_LANGUAGE = re.compile(r"^\s*%%(?!time|timeit|capture|prun)\w+")


@dataclass(frozen=True, slots=True)
class Notebook:
    """``code``: the text of all code cells, each ended by a line end; ``cells``: where each begins."""

    code: str
    cells: tuple[Cell, ...]


def notebook(raw: bytes) -> Notebook | str:
    """Return the Python code of a notebook, or why there is none."""
    try:
        document = json.loads(raw)
        cells = document["cells"] if "cells" in document else document["worksheets"][0]["cells"]
        language = document.get("metadata", {}).get("kernelspec", {}).get("language", "python")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        return f"no notebook: {type(error).__name__}: {error}"
    except RecursionError:
        return "no notebook: nested too deeply"
    if language.lower() not in ("python", "ipython"):
        return Notebook("", ())
    lines: list[str] = []
    starts: list[Cell] = []
    for number, cell in enumerate(cells, start=1):
        code = _code(cell)
        if code:
            starts.append(Cell(number, len(lines) + 1))
            lines += code
    return Notebook("".join(f"{line}\n" for line in lines), tuple(starts))


def _code(cell: Any) -> list[str]:
    """Return the lines of a code cell; none of another cell, or of one in another language."""
    if not isinstance(cell, dict) or cell.get("cell_type") != "code":
        return []
    source = cell.get("source", cell.get("input", ""))
    text = "".join(map(str, source)) if isinstance(source, list) else str(source)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if _OTHER_LANGUAGE.match(lines[0]):
        return []
    return [_python(line) for line in lines]


def _python(line: str) -> str:
    if not _MAGIC.match(line):
        return line
    blank = line[: len(line) - len(line.lstrip())]
    return f"{blank}pass"


def python_of(path: str, raw: bytes) -> bytes | str:
    """Return the Python source of a file or a notebook, as bytes; or why there is none."""
    if not path.endswith(".ipynb"):
        return raw
    cells = notebook(raw)
    return cells.code.encode(errors="replace") if isinstance(cells, Notebook) else cells


def text_of(path: str, raw: bytes) -> str:
    """Return the text; of what cannot be decoded, what can be shown of it."""
    code = python_of(path, raw)
    if isinstance(code, str):
        return ""
    text = decode(code)
    return code.decode("utf-8", "replace") if isinstance(text, Unreadable) else text


def source_of(path: str, raw: bytes) -> Source:
    """Return the lines that excerpts are cut from, and the cells of a notebook."""
    text = text_of(path, raw).replace("\r\n", "\n").replace("\r", "\n")
    cells = notebook(raw) if path.endswith(".ipynb") else ""
    return Source(tuple(text.removesuffix("\n").split("\n")), cells.cells if isinstance(cells, Notebook) else ())
