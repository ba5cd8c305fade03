"""Commands that are given to a shell, as far as they are known. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from allranks.check.interpret.given import Given
from allranks.check.interpret.values import ANYTHING, Value
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node

# They read all that they are given but the last, where they write.
_COPYING = ("cp", "mv", "ln", "rsync", "scp", "aws", "gsutil", "gcloud")
_REDIRECTED = re.compile(r"\s*[12&]?>.*")


def words(given: Given, *keys: int | str) -> str:
    """Return a command as far as it is known, as a shell would be given it."""
    value, node = given.argument(*keys), given.expression(*keys)
    if node is not None and node[0] == "call" and node[2] and render(node[1]) == "shlex.split":
        node, value = node[2][0], None
    if value is None or node is None:
        return _plain(render(node)) if node is not None else ""
    if isinstance(value.constant, str):
        return value.constant
    if value.elements:
        return " ".join(v.constant if isinstance(v.constant, str) else v.text or "{}" for v in value.elements)
    return _plain(value.text or render(node))


def own(whole: Value, node: Node, command: str, value: Callable[[Node], Value]) -> Value | None:
    """Return the path that a command (``whole``, put together by ``node``) works on, if it is this process' own; what a
    call gives is, where nothing else that the command is made of is."""
    nodes = _parts(node)
    parts = whole.elements or [value(part) if part[0] in ("name", "attr") else ANYTHING for part in nodes]
    by_call = [whole if part[0] == "call" and not any(p.private for p in parts) else ANYTHING for part in nodes]
    found = [*zip(parts, by_call, strict=False)][-1 if command.split()[:1] and command.split()[0] in _COPYING else 0 :]
    return next((one for pair in found for one in pair if one.private), None)


def _parts(node: Node) -> Sequence[Node]:
    """Return what a command is put together of, in order: of a text the parts that are filled in, and words behind."""
    match node:
        case ("text", (*_, last) as parts):
            words_behind = last[0] == "const" and " " in _REDIRECTED.sub("", str(last[1])).rstrip()
            return [*(part for part in parts if part[0] != "const"), *([last] if words_behind else [])]
        case ("seq", parts):
            return list(parts)
        case ("op", left, right, "+"):
            return [*_parts(left), *_parts(right)]
        case ("op", ("const", _), right, "%"):
            return _parts(right)
        case ("call", ("attr", ("const", _), "format", *_), values, *_):
            return list(values)
    return [node]


def _plain(text: str) -> str:
    """Return what an expression is made of as a command: without the quotation marks, the operators as words."""
    return text.removeprefix("f").lstrip("'\"[(").replace("'", " ").replace('"', " ").replace(",", " ")
