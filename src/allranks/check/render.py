"""Expressions of a summary as short text, for messages and to tell whether two conditions are the same."""

from __future__ import annotations

from allranks.check.summary import Node


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
        return f"not {render(node[1], down)}"
    if tag in ("and", "or"):
        return f" {tag} ".join(render(part, down) for part in node[1])
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


def _plain(node: Node) -> bool:
    return node[0] == "const" and isinstance(node[1], str)
