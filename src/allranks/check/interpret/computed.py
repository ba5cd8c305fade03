"""Computations that all processes run together: compiled functions of JAX on arrays that are spread over them."""

from __future__ import annotations

import re

from allranks.check.interpret.given import Given
from allranks.check.interpret.members import Members
from allranks.check.interpret.spread import (
    ARRAY,
    KEYED,
    PARTS,
    PARTS_VALUE,
    ROWS,
    SPREAD,
    SPREAD_VALUE,
    entries,
    holds_parts,
    is_spread,
    lying,
    pairs,
)
from allranks.check.interpret.state import Frame
from allranks.check.interpret.values import ANYTHING, Value, replace
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node
from allranks.check.tables.arrays import COMPILERS, COMPUTATION, MESHES, ON_ONE, PLACING, SHARDED_BY, SHARDINGS, SPECS

# Flags of a function: it is compiled; for all devices of a mesh; for those of this process, with an axis over all; and
# what it gives lies in parts on all processes, all of it or (``split``) some, as its one element says.
COMPILED = frozenset({"jit", "sharded", "mapped", "parting", "split"})
# Flags of what says how an array lies: ``cut`` along an axis of a mesh, with ``rows`` the first of its own axes, or
# ``whole`` on each device; of a mesh of this process' own devices, ``here``.
CUT, WHOLE, HERE = frozenset({"cut"}), frozenset({"whole"}), frozenset({"here"})
_OWN = re.compile(r"local_(?!device_count)")
_WHOLE = re.compile(r"\bP(artitionSpec)?\(\s*\)|repl|SingleDevice", re.IGNORECASE)


class Computed(Members):
    """Calls compiled functions."""

    def called(self, frame: Frame, function: Value, given: Given) -> Value:
        raise NotImplementedError

    def computed(self, frame: Frame, function: Value, given: Given) -> Value:
        """Call a compiled function: a meeting if it is made for all devices, or is given what lies on all."""
        kinds, plain = function.flags & COMPILED, replace(function, flags=function.flags - COMPILED)
        plain, so_far = replace(plain, elements=None), len(frame.nodes)
        inside = self.called(frame, plain, given) if plain.reference else ANYTHING
        if "split" in kinds:
            made = function.elements[0] if function.elements else SPREAD_VALUE
        else:
            made = PARTS_VALUE if "parting" in kinds else ANYTHING if "mapped" in kinds else SPREAD_VALUE
            made = lying(inside) if kinds == {"jit"} else made
        if kinds.isdisjoint({"sharded", "mapped"}) and not any(value.flags & SPREAD for value in given.all()):
            return inside if kinds == {"jit"} else made
        del frame.nodes[so_far:]  # its body is not run, but read, and what it says is computed as a whole
        frame.nodes.append(("meet", COMPUTATION, "hidden", given.span, "jax.jit"))
        return made

    def spread(self, name: str, given: Given) -> Value:
        """Return an array that is made of what all processes have: in parts, if its sharding says so, or if it is made
        of what each of them has for itself, which is not all of it, and does not say that it is replicated."""
        texts = [render(node) for node in (*given.node[2], *(node for _, node in given.node[3]))]
        first: Node = given.node[2][0] if given.node[2] else ("const", None)
        decided = first[0] == "call" and not render(first[1]).endswith("Sharding")  # by what it is given: a number
        decided = decided or any(f"{text}.shape" in texts for text in texts)  # each has the whole
        told = frozenset().union(*(value.flags for value in given.all()))
        if told & HERE:
            return ANYTHING
        if told & WHOLE or not (told & CUT or ("local" in name and not decided)) or any(map(_WHOLE.search, texts)):
            return SPREAD_VALUE
        return Value(flags=PARTS | told & ROWS | (ARRAY if name.startswith("jax.make_") else frozenset()))

    def decorated_by(self, frame: Frame, decorator: Node, value: Value) -> Value | None:
        """Return a function behind ``@jax.jit``, ``@jax.jit(...)`` or ``@partial(jax.jit, ...)``, if it is one."""
        if decorator[0] != "call":
            found = self.value(frame, decorator) if decorator[0] in ("name", "attr") else ANYTHING
            return compiled(value, found.reference, frozenset()) if found.reference in COMPILERS else None
        head, keys = decorator[1], frozenset(key for key, _ in decorator[3] if key)
        found = self.value(frame, head) if head[0] in ("name", "attr") else ANYTHING
        if found.reference == "functools.partial" and decorator[2] and decorator[2][0][0] in ("name", "attr"):
            found = self.value(frame, decorator[2][0])
        if found.reference not in COMPILERS:
            return None
        gives = next((node for key, node in decorator[3] if key == "out_shardings"), None)
        return parting(compiled(value, found.reference, keys), self.value(frame, gives) if gives else None)


def compiled(function: Value, compiler: str, keys: frozenset[str]) -> Value:
    """Return what ``compiler`` makes of a function, called with these keywords."""
    kind = "sharded" if keys & SHARDED_BY else "jit"
    if compiler.endswith("pmap"):
        kind = "mapped" if "axis_name" in keys else ""
    flags = frozenset({kind}) if kind else frozenset()
    return replace(function, flags=(function.flags - COMPILED) | flags | (function.flags & {"parting", "split"}))


def parting(function: Value, gives: Value | None) -> Value:
    """Return a function whose result lies as ``gives`` says."""
    if gives is not None and holds_parts(tree := laid_tree(gives)) and gives.elements is not None:
        return replace(function, flags=(function.flags - {"parting"}) | {"split"}, elements=(tree,))
    if gives is None or gives.elements is not None or not gives.flags & (CUT | WHOLE):
        return function
    return replace(function, flags=(function.flags - {"parting"}) | ({"parting"} if is_cut(gives) else frozenset()))


def is_cut(sharding: Value) -> bool:
    """Say whether what lies so lies in parts on all processes, for certain."""
    return "cut" in sharding.flags and not sharding.flags & (WHOLE | HERE)


def laid(sharding: Value) -> Value:
    """Return what lies as a sharding says."""
    if "here" in sharding.flags:
        return ANYTHING
    return Value(flags=PARTS | sharding.flags & ROWS) if is_cut(sharding) else SPREAD_VALUE


def laid_tree(shardings: Value) -> Value:
    """Return what lies as a tree of shardings says, by key or place: of what it does not tell, that it is on all."""
    if shardings.flags & KEYED:
        return entries((key, laid_tree(value)) for key, value in pairs(shardings)) or SPREAD_VALUE
    if shardings.elements is not None:
        elements = tuple(map(laid_tree, shardings.elements))
        return Value(elements=elements, flags=is_spread(elements) or SPREAD)
    return laid(shardings) if is_cut(shardings) else SPREAD_VALUE


def placed(name: str, given: Given) -> Value | None:
    """Return what is put on the devices as is said with it; None of other calls."""
    keys = (1, "device", "shardings") if name in PLACING else ("device",) if name.startswith("jax.numpy.") else ()
    sharding = given.argument(*keys)
    if sharding is not None and sharding.elements is not None:
        return tree if holds_parts(tree := laid_tree(sharding)) else None
    return laid(sharding) if sharding is not None and sharding.instance in SHARDINGS | SPECS else None


def laid_out(name: str, given: Given) -> Value | None:
    """Return what a spec, a mesh or a sharding says of how an array lies; None for other calls."""
    if name in SPECS:
        named = any(value.constant is not None for value in given.values)
        return Value(instance=name, flags=_spec(given) if named else WHOLE)
    if name == ON_ONE:
        return Value(instance=name, flags=HERE)
    if name in MESHES:
        own = any(_OWN.search(render(node)) for node in given.node[2])
        return Value(instance=name, flags=HERE if own else frozenset())
    if name in SHARDINGS:
        flags = frozenset().union(*(value.flags for value in given.all()))
        return Value(instance=name, flags=flags & (CUT | WHOLE | HERE | ROWS))
    return None


def _spec(given: Given) -> frozenset[str]:
    """An axis is named: by a text, or by several in a tuple."""
    named = [any(isinstance(part.constant, str) for part in (v, *(v.elements or ()))) for v in given.values]
    return (CUT | ROWS if named[0] else CUT) if any(named) else frozenset()
