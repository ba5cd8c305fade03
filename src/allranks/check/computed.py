"""Computations that all processes run together: compiled functions of JAX on arrays that are spread over them."""

from __future__ import annotations

import re
from dataclasses import replace

from allranks.check.given import Given
from allranks.check.members import Members
from allranks.check.render import render
from allranks.check.state import Frame
from allranks.check.summary import Node
from allranks.check.tables.arrays import COMPILERS, COMPUTATION, SHARDED_BY
from allranks.check.values import ANYTHING, Value

# Flags of a function: it is compiled; for all devices of a mesh; for those of this process, with an axis over all.
COMPILED = frozenset({"jit", "sharded", "mapped"})
SPREAD = frozenset({"spread"})
SPREAD_VALUE = Value(flags=SPREAD)
# Each process has a part of it, not the whole (as of what is replicated).
PARTS_VALUE = Value(flags=SPREAD | {"parts"})
_WHOLE = re.compile(r"\bP(artitionSpec)?\(\s*\)|repl|SingleDevice", re.IGNORECASE)


class Computed(Members):
    """Calls compiled functions."""

    def called(self, frame: Frame, function: Value, given: Given) -> Value:
        raise NotImplementedError

    def computed(self, frame: Frame, function: Value, given: Given) -> Value:
        """Call a compiled function: a meeting if it is made for all devices, or is given what lies on all."""
        kinds, plain = function.flags & COMPILED, replace(function, flags=function.flags - COMPILED)
        inside = self.called(frame, plain, given) if plain.reference else ANYTHING
        given_spread = any(value.flags & SPREAD for value in (*given.values, *(v for _, v in given.keywords)))
        if kinds == {"jit"} and not given_spread:
            return inside
        frame.nodes.append(("meet", COMPUTATION, "hidden", given.span, "jax.jit"))
        return ANYTHING if "mapped" in kinds else SPREAD_VALUE

    def spread(self, given: Given) -> Value:
        """Return an array that is made of what all processes have; replicated, if its sharding says so."""
        texts = [render(node) for node in (*given.node[2], *(node for _, node in given.node[3]))]
        first: Node = given.node[2][0] if given.node[2] else ("const", None)
        decided = first[0] == "call" and not render(first[1]).endswith("Sharding")  # by what it is given: a number
        return SPREAD_VALUE if decided or any(map(_WHOLE.search, texts)) else PARTS_VALUE

    def decorated_by(self, frame: Frame, decorator: Node, value: Value) -> Value | None:
        """Return a function behind ``@jax.jit``, ``@jax.jit(...)`` or ``@partial(jax.jit, ...)``, if it is one."""
        if decorator[0] != "call":
            found = self.value(frame, decorator) if decorator[0] in ("name", "attr") else ANYTHING
            return compiled(value, found.reference, frozenset()) if found.reference in COMPILERS else None
        head, keys = decorator[1], frozenset(key for key, _ in decorator[3] if key)
        found = self.value(frame, head) if head[0] in ("name", "attr") else ANYTHING
        if found.reference == "functools.partial" and decorator[2] and decorator[2][0][0] in ("name", "attr"):
            found = self.value(frame, decorator[2][0])
        return compiled(value, found.reference, keys) if found.reference in COMPILERS else None


def compiled(function: Value, compiler: str, keys: frozenset[str]) -> Value:
    """Return what ``compiler`` makes of a function, called with these keywords."""
    kind = "sharded" if keys & SHARDED_BY else "jit"
    if compiler.endswith("pmap"):
        kind = "mapped" if "axis_name" in keys else ""
    flags = frozenset({kind}) if kind else frozenset()
    return replace(function, flags=(function.flags - COMPILED) | flags)
