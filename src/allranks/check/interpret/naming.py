"""What the names of variables, and names that are filled in, say beyond the values that they hold."""

from __future__ import annotations

import re

from allranks.check.interpret.given import Given
from allranks.check.interpret.state import Frame
from allranks.check.interpret.values import (
    ANYTHING,
    CLOCK,
    LOCAL_RANK,
    NODE,
    OWN,
    RANK,
    SUMMED,
    Value,
    replace,
    tainted,
)
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node
from allranks.check.tables.items import COPIES, is_batch, is_step, key_of_name
from allranks.check.tables.passing import is_cut_to_day, is_of_day

# A name that is filled in with the rank: "log-{rank:03d}.txt", "%(local_rank)s.txt".
_TEMPLATE = re.compile(r"[{(](\w*_)?rank[})!:]")
# How the text of a value begins that ``strftime`` has written: in the form that follows.
_WRITTEN = "time: "
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
    own = value.number or value.taint & CLOCK or not SUMMED.isdisjoint(value.flags)
    return ANYTHING if name and is_step(name) and not own else value


def counted(one: Value, other: Value, symbol: str) -> frozenset[str]:
    """Return the flags of a sum: with a rank in it, it is counted from that (``step = rank + total``)."""
    texts = isinstance(one.constant, str) or isinstance(other.constant, str)
    return SUMMED if symbol == "+" and one.number != other.number and not texts else frozenset()


def filled_in(base: Value, name: str, given: Given) -> Value:
    """Return what a method gives that adds nothing: a text is as much its process' own as what is put in."""
    if name == "strftime" and given.values and is_of_day(given.values[0].constant):
        return Value(base.taint & ~CLOCK, flags=base.flags & OWN)
    if name == "strftime" and given.values and isinstance(given.values[0].constant, str):
        return replace(tainted(base), text=_WRITTEN + given.values[0].constant)
    if name == "wrapattr" and any(value.private for value in given.values):
        return Value(flags=OWN)
    made = tainted(base, *given.all())
    flags = base.flags.union(*(value.flags & OWN for value in given.all() if name in ("format", "join")))
    return replace(made, flags=flags) if flags else made


def cut(base: Value, at: Node) -> Value | None:
    """Return what is left of the time that ``strftime`` has written, where a slice leaves the day of it alone."""
    written = base.taint & CLOCK and base.text.startswith(_WRITTEN) and at[0] == "many" and len(at) > 2
    of_day = written and is_cut_to_day(base.text.removeprefix(_WRITTEN), at[2])
    return Value(base.taint & ~CLOCK) if of_day else None


def is_sample(frame: Frame, node: Node) -> bool:
    """Whether a variable holds what a data loader gave, or a call gives what it makes of that."""
    if node[0] == "call":
        return any(given[0] == "name" and is_sample(frame, given) for given in node[2])
    name = node[1] if node[0] == "name" else ""
    return name in frame.samples or (is_batch(name) and name in frame.facts.positional)


def from_batch(frame: Frame, node: Node, value: Value) -> Value:
    """Return what is stored: parts of a batch that is taken apart are this process' own, and so are their names."""
    given = node[3][0] == "name" and is_batch(node[3][1]) and node[3][1] in frame.facts.positional
    apart = given and any(target[0] == "seq" for target in node[2])
    return Value(flags=OWN) if apart and value.elements is None and not (value.taint or value.flags) else value


def named_in(frame: Frame, node: Node, value: Value) -> Value:
    """Return what a call gives: of a sample, and the key under which that has its name, such a name
    (``self.get_input(batch, "fname")``)."""
    asked = value == ANYTHING and any(one[0] == "const" and key_of_name(one[1]) for one in node[2])
    return Value(flags=OWN) if asked and is_sample(frame, node) else value
