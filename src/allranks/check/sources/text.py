"""The text of a file that places point into: a Python file's, or a notebook's code cells one after the other. Pure."""

from __future__ import annotations

from allranks.check.sources.notebook import Notebook, notebook
from allranks.check.sources.source import Unreadable, decode
from allranks.report.base import Source


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
