"""What the names of variables, and names that are filled in, say beyond the values that they hold."""

from __future__ import annotations

import re

from allranks.check.interpret.state import Frame
from allranks.check.interpret.values import ANYTHING, CLOCK, LOCAL_RANK, NODE, OWN, RANK, Value
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node
from allranks.check.tables.items import COPIES, is_batch, is_step

# A name that is filled in with the rank: "log-{rank:03d}.txt", "%(local_rank)s.txt".
_TEMPLATE = re.compile(r"[{(](\w*_)?rank[})!:]")
# How many processes a node has.
_OF_A_NODE = re.compile(r"gpu|nproc|per_(node|host|machine)|local_(world_)?size|device_count|n_?devices")


def takes_rank(text: str) -> bool:
    """Whether the rank is to be filled into a text."""
    return "rank" in text and _TEMPLATE.search(text) is not None


def is_local(one: Value, other: Value, node: Node) -> bool:
    """Whether one number is the rank on its node, or among those that it started, and the other (``node``) is made of
    which node that is, or is so many times what a node has: as a sum, the rank."""
    ours = one.number and one.taint & (LOCAL_RANK | RANK) and not other.number
    before = other.taint & (NODE if one.taint & RANK else NODE | RANK)
    return bool(ours and (before or (node[0] == "op" and node[3] == "*" and _OF_A_NODE.search(render(node)))))


def alike(node: Node, value: Value) -> Value:
    """Return what a part of a name is: the step in it is no rank, though it was set under a guard on one."""
    name = node[1] if node[0] == "name" else node[2] if node[0] == "attr" else ""
    if value == ANYTHING and name in COPIES:
        return Value(flags=OWN)
    return ANYTHING if name and is_step(name) and not value.number and not value.taint & CLOCK else value


def is_sample(frame: Frame, node: Node) -> bool:
    """Whether a variable holds what a data loader gave."""
    name = node[1] if node[0] == "name" else ""
    return name in frame.samples or (is_batch(name) and name in frame.facts.positional)
