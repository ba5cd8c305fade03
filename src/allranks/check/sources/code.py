"""The lines of a file that do something: without comments, docstrings, and imports of which nothing is used. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from allranks.check.sources.nodes import children

_Span = tuple[int, int, int, int]  # as the parser counts: lines from 1, columns in bytes of UTF-8


def code_of(nodes: Sequence[ast.AST], lines: Sequence[str], *, exports: bool = False) -> list[str]:
    """Return lines with what does nothing as spaces; none is left out. ``nodes``: all of the file. ``exports``: others
    take its imports from it."""
    code = list(lines)
    statements = {id(at.value) for at in nodes if isinstance(at, ast.Expr)}
    texts = [at for at in nodes if isinstance(at, ast.JoinedStr) or _is_text(at)]
    docs = [_span(at) for at in texts if id(at) in statements]
    for span in (*docs, *(() if exports else _unused(nodes))):
        _blank(code, span)
    covered: dict[int, list[tuple[int, int]]] = {}
    for line, column, end_line, end_column in (_span(at) for at in texts if id(at) not in statements):
        for at in range(line, end_line + 1):
            covered.setdefault(at, []).append((column if at == line else 0, end_column if at == end_line else 1 << 30))
    for at, text in enumerate(code):
        if "#" in text:
            code[at] = _without_comment(text, covered.get(at + 1, ()))
    return code


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _span(node: ast.AST) -> _Span:
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    return line, column, getattr(node, "end_lineno", line), getattr(node, "end_col_offset", column)


def _unused(nodes: Sequence[ast.AST]) -> Iterator[_Span]:
    """Yield where names are imported that nothing in the file uses."""
    used = {at.id for at in nodes if isinstance(at, ast.Name)}
    used.update(str(at.value) for at in nodes if isinstance(at, ast.Constant) and isinstance(at.value, str))  # __all__
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound = {alias: alias.asname or alias.name.partition(".")[0] for alias in children(node)}  # type: ignore[attr-defined]
            unused = [alias for alias, name in bound.items() if name not in used and name != "*"]
            yield from map(_span, unused if len(unused) < len(bound) else [node])


def _blank(code: list[str], span: _Span) -> None:
    line, column, end_line, end_column = span
    first, last = code[line - 1].encode(), code[end_line - 1].encode()
    if line == end_line:
        code[line - 1] = (first[:column] + b" " * (end_column - column) + first[end_column:]).decode()
        return
    code[line - 1], code[end_line - 1] = first[:column].decode(), last[end_column:].decode()
    code[line : end_line - 1] = [""] * (end_line - line - 1)


def _without_comment(text: str, covered: Iterable[tuple[int, int]]) -> str:
    """Return a line up to the first ``#`` that is in no text."""
    raw, at = text.encode(), -1
    while (at := raw.find(b"#", at + 1)) >= 0:
        if not any(begin <= at < end for begin, end in covered):
            return raw[:at].decode()
    return text
