"""Colour texts for a terminal, or leave them unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Ink: TypeAlias = Callable[[str, str], str]

_CODES = {
    "bold": "1",
    "dim": "2",
    "error": "1;31",
    "warning": "1;33",
    "info": "1;36",
    "ok": "32",
    "not seen": "2",
    "not determined": "2",
    "blue": "1;34",
}


def make_painter(colour: bool) -> Ink:
    """Return a function that colours a text in a style.

    Without ``colour``, or for an unknown style, the function returns the text unchanged.
    """

    def paint(text: str, style: str) -> str:
        code = _CODES.get(style)
        return f"\x1b[{code}m{text}\x1b[0m" if colour and code and text else text

    return paint
