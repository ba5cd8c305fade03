"""Logical lines: which lines of a file are one statement (or the head of a compound one), and its comments. Pure."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$")
_BLANK = (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)


@dataclass(frozen=True, slots=True)
class Comment:
    """``text`` from its ``#`` on, at a line from 1 and a column from 0."""

    text: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Logical:
    """Lines ``first`` to ``last`` (with it), from 1. ``text``: its tokens with a blank between, without comments."""

    first: int
    last: int
    text: str
    above: tuple[Comment, ...] = ()
    inside: tuple[Comment, ...] = ()


def split_lines(text: str) -> list[str]:
    """Return lines with their ends, as Python's parser counts them: form feeds and Unicode's separators end none."""
    return _LINE.findall(text)


def logical_lines(text: str) -> tuple[Logical, ...]:
    """Return the logical lines in order. Where the text is no Python, what came before that place.

    Comments that no statement follows stand in ``above`` of a last, empty logical line.
    """
    return tuple(_logical_lines(text))


def _logical_lines(text: str) -> Iterator[Logical]:
    above: list[Comment] = []
    inside: list[Comment] = []
    words: list[str] = []
    first = last = 0
    for token in _tokens(text):
        if token.type == tokenize.COMMENT:
            (inside if words else above).append(Comment(token.string, token.start[0], token.start[1]))
        elif token.type == tokenize.NEWLINE:
            last = token.start[0]
            yield Logical(first, last, " ".join(words), tuple(above), tuple(inside))
            above, inside, words = [], [], []
        elif token.type not in _BLANK and token.string:
            first = first if words else token.start[0]
            words.append(token.string)
    if above or inside or words:
        end = first if words else last + 1
        yield Logical(end, end, " ".join(words), tuple(above), tuple(inside))


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    try:
        yield from tokenize.generate_tokens(io.StringIO(text, newline=None).readline)
    except (tokenize.TokenError, SyntaxError):
        return
