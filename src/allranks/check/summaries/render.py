"""Expressions of a summary as short text, for messages and to tell whether two conditions are the same."""

from __future__ import annotations

from allranks.check.summaries.summary import Node


def render(node: Node, depth: int = 4) -> str:
    """Return ``node`` as Python, roughly; what is nested deeper than ``depth`` is an ellipsis."""
    if depth == 0:
        return "…"
    tag, down = node[0], depth - 1
    if tag == "name":
        return str(node[1])
    if tag == "const":
        return repr(node[1])
    if tag == "attr":
        return f"{render(node[1], depth)}.{node[2]}"
    if tag == "call":
        inside = [render(a, down) for a in node[2]] + [f"{k or '**'}={render(v, down)}" for k, v in node[3]]
        return f"{render(node[1], depth)}({', '.join(inside)})"
    if tag == "not":
        return f"not {_inside(node[1], down)}"
    if tag in ("and", "or"):
        return f" {tag} ".join(_inside(part, down) for part in node[1])
    if tag == "cmp":
        pairs = zip(node[2], node[3], strict=True)
        return render(node[1], down) + "".join(f" {symbol} {render(right, down)}" for symbol, right in pairs)
    if tag == "op":
        return f"{render(node[1], down)} {node[3]} {render(node[2], down)}"
    if tag == "sub":
        return f"{render(node[1], down)}[{render(node[2], down)}]"
    if tag == "text":
        return "f'" + "".join(p[1] if _plain(p) else f"{{{render(p, down)}}}" for p in node[1]) + "'"
    if tag == "seq":
        return "[" + ", ".join(render(part, down) for part in node[1]) + "]"
    return "…"


def _inside(node: Node, depth: int) -> str:
    """Return what stands behind a ``not``, an ``and`` or an ``or``."""
    return f"({render(node, depth)})" if node[0] in ("and", "or") else render(node, depth)


_DENIED = {"!=": "==", "is not": "is", "not in": "in"}
_ZERO: Node = ("const", 0)


def condition(node: Node) -> str:
    """Return a truth as text; of two that deny each other, one is the other behind a ``not``."""
    if node[0] == "not":
        return denied(condition(node[1]))
    if node[0] == "op" and _halves(node):
        return denied(render(("cmp", node, ("==",), (_ZERO,))))
    if node[0] == "cmp" and len(node[2]) == 1:
        if node[2][0] in _DENIED:
            return denied(condition(("cmp", node[1], (_DENIED[node[2][0]],), node[3])))
        if node[2][0] == "==" and node[3][0] == ("const", 1) and _halves(node[1]):
            return denied(render(("cmp", node[1], ("==",), (_ZERO,))))
    return _inside(node, 4)


def _halves(node: Node) -> bool:
    """Whether a number is either 0 or 1: what is left of a division by two."""
    return bool(node[0] == "op" and node[3] == "%" and node[2] == ("const", 2))


def denied(text: str) -> str:
    """Return the text of what is true where ``text`` is not."""
    return text.removeprefix("not ") if text.startswith("not ") else f"not {text}"


def _plain(node: Node) -> bool:
    return node[0] == "const" and isinstance(node[1], str)


def absorbed(node: Node) -> Node:
    """Return ``(a and b) or not a`` as ``b or not a``, which is the same: that ``a`` holds says nothing of ``b``."""
    denied = {render(part[1]) for part in node[1] if part[0] == "not"}
    parts = tuple(_without(part, denied) if part[0] == "and" else part for part in node[1])
    return (node[0], parts, *node[2:]) if denied else node


def _without(both: Node, denied: set[str]) -> Node:
    left = tuple(part for part in both[1] if render(part) not in denied)
    if not left or len(left) == len(both[1]):
        return both
    return left[0] if len(left) == 1 else (both[0], left, *both[2:])


def under_main(statement: Node) -> bool:
    """Whether a statement of a module is what it does as a program alone."""
    return bool(statement[0] == "if" and "__main__" in render(statement[2]))
