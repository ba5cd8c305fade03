"""Branches that say whether a model lies in parts. Pure."""

from __future__ import annotations

from allranks.check.summaries.project import SHARDS
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node


def where_whole(node: Node) -> tuple[Node, ...] | None:
    """Return the side of a branch where a model is not in parts, if it asks for that."""
    asked = render(node[2])
    if not SHARDS.search(asked) or " and " in asked or " or " in asked:
        return None
    side: tuple[Node, ...] = node[3] if asked.startswith("not ") or " != " in asked else node[4]
    return side
