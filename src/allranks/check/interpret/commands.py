"""Commands that are given to a shell, as far as they are known. Pure."""

from __future__ import annotations

from allranks.check.interpret.given import Given
from allranks.check.summaries.render import render


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


def _plain(text: str) -> str:
    """Return what an expression is made of as a command: without the quotation marks, the operators as words."""
    return text.removeprefix("f").lstrip("'\"[(").replace("'", " ").replace('"', " ").replace(",", " ")
