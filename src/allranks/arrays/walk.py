"""Flatten containers into leaves and rebuild them, for any framework. Paths are those of ``jax.tree_util.keystr``."""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from allranks.errors import CannotStore

# Makes a node from the next leaves; None is used for a leaf: the result is the next leaf.
Maker = Callable[[Iterator[object]], object]


@dataclass(frozen=True, slots=True)
class OpenedNode:
    """A container node of a tree: its children, their names, and ``make``, which rebuilds the node from new children.

    ``names``: None for a node with one child that has the node's own path.
    ``decodes``: whether ``make`` may refuse its children. It is then called before any other part of the tree is
    filled.
    """

    names: Sequence[object] | None
    children: Sequence[object]
    make: Callable[[list[object]], object]
    decodes: bool = False


Opener = Callable[[Any], OpenedNode]


@dataclass(frozen=True, slots=True)
class DeferredChild:
    """A child whose value depends on its path: ``make(path)`` returns it.

    ``follows_checkpoint``: whether the child also depends on what is saved at that path.
    """

    make: Callable[[str], object]
    follows_checkpoint: bool = True


class DecodedPart:
    """A node whose object can be made before the rest of the tree, only from the leaves numbered ``places``."""

    def __init__(self, places: range, make: Maker) -> None:
        self.places = places
        self._make = make
        self._made: list[object] = []

    def make_object(self, leaves: Iterable[object]) -> None:
        """Make the object from its leaves, and keep it for the rebuild. Raises any error of its decoder."""
        self._made = [self._make(iter(leaves))]

    def __call__(self, leaves: Iterator[object]) -> object:
        mine = list(islice(leaves, len(self.places)))
        return self._made[0] if self._made else self._make(iter(mine))


class TreeWalk:
    """The leaves of a tree in order, and their paths; ``make`` rebuilds the tree with other leaves.

    ``is_leaf``: returns whether objects of a type are leaves.
    ``opener``: returns how to open a node that is not a plain container. A node that nothing can open is a leaf, too.
    ``follows_checkpoint``: whether a child depends on what is saved.
    ``parts``: the outermost nodes whose branch ``decodes``.

    Raises CannotStore for keys that cannot be part of a path.
    """

    def __init__(
        self, tree: object, *, is_leaf: Callable[[type], bool], opener: Callable[[object], Opener | None]
    ) -> None:
        self.paths: list[str] = []
        self.leaves: list[object] = []
        self.follows_checkpoint = False
        self.parts: list[DecodedPart] = []
        self._is_leaf = is_leaf
        self._opener = opener
        self._openers: dict[type, Opener | None] = {}
        self._maker = self._visit_node(tree, None)

    def rebuild_tree(self, leaves: Iterator[object]) -> object:
        """Return the tree with these leaves instead of its own."""
        return next(leaves) if self._maker is None else self._maker(leaves)

    def _visit_node(self, node: object, path: str | None) -> Maker | None:
        if type(node) is DeferredChild:
            self.follows_checkpoint |= node.follows_checkpoint
            node = node.make(path or "")
        kind = type(node)
        if kind not in self._openers:
            self._openers[kind] = self._opener_of(node)
        opener = self._openers[kind]
        if opener is None:
            self.paths.append(path or "")
            self.leaves.append(node)
            return None
        branch = opener(node)
        make, names = branch.make, branch.names
        if names is None:
            first, inside = len(self.leaves), len(self.parts)
            makers = [self._visit_node(child, path) for child in branch.children]
            if branch.decodes:
                part = DecodedPart(range(first, len(self.leaves)), _node_maker(make, makers))
                self.parts[inside:] = [part]
                return part
            return _node_maker(make, makers)
        prefix = "" if path is None else f"{path}/"
        if not _KEYS.issuperset(map(type, names)):
            raise _bad_key(path or "", names)
        makers = [
            self._visit_node(child, f"{prefix}{name}") for name, child in zip(names, branch.children, strict=True)
        ]
        return _node_maker(make, makers)

    def _opener_of(self, node: object) -> Opener | None:
        kind = type(node)
        if self._is_leaf(kind) or isinstance(node, type):
            return None
        if kind in _PLAIN:
            return _PLAIN[kind]
        if isinstance(node, tuple) and hasattr(kind, "_fields"):
            return _open_namedtuple
        if found := self._opener(node):
            return found
        if callable(getattr(kind, "state_dict", None)) and callable(getattr(kind, "load_state_dict", None)):
            return _open_stateful
        if dataclasses.is_dataclass(node):
            return _open_dataclass
        return next((opener for base, opener in _PLAIN.items() if isinstance(node, base)), None)


def _node_maker(make: Callable[[list[object]], object], makers: Sequence[Maker | None]) -> Maker:
    return lambda leaves: make([next(leaves) if maker is None else maker(leaves) for maker in makers])


def _open_dict(node: dict[Any, object]) -> OpenedNode:
    try:
        keys = sorted(node)
    except TypeError:  # keys of several types
        keys = sorted(node, key=lambda key: (type(key).__name__, key))
    return _branch_of_dict(node, keys)


def _open_ordered(node: OrderedDict[Any, object]) -> OpenedNode:
    return _branch_of_dict(node, list(node))


def _branch_of_dict(node: dict[Any, object], keys: list[Any]) -> OpenedNode:
    def make(children: list[object]) -> object:
        made = copy.copy(node)  # keeps the order of the keys, and what a subclass has besides
        for key, child in zip(keys, children, strict=True):
            made[key] = child  # Counter.update would add
        return made

    return OpenedNode(keys, [node[key] for key in keys], make)


def _open_list(node: list[object]) -> OpenedNode:
    def make(children: list[object]) -> object:
        if type(node) is list:
            return children
        made = copy.copy(node)
        made[:] = children
        return made

    return OpenedNode(range(len(node)), node, make)


def _open_tuple(node: tuple[object, ...]) -> OpenedNode:
    return OpenedNode(range(len(node)), node, type(node))


def _open_namedtuple(node: Any) -> OpenedNode:
    return OpenedNode(node._fields, node, node._make)


def _open_dataclass(node: Any) -> OpenedNode:
    names = [field.name for field in dataclasses.fields(node)]

    def make(children: list[object]) -> object:
        made = copy.copy(node)  # no constructor, which may compute, refuse or count
        for name, child in zip(names, children, strict=True):
            object.__setattr__(made, name, child)
        return made

    return OpenedNode(names, [getattr(node, name) for name in names], make)


def _open_stateful(node: Any) -> OpenedNode:
    return stateful_node(node, node.state_dict(), node.load_state_dict)


def stateful_node(node: object, state: object, load_state: Callable[[Any], object]) -> OpenedNode:
    """Return the branch of an object with a state. On a rebuild the object stays the same and loads the new state."""

    def make(children: list[object]) -> object:
        load_state(children[0])
        return node

    return OpenedNode(None, (state,), make)


def _bad_key(path: str, names: Sequence[object]) -> CannotStore:
    name = next(name for name in names if type(name) not in _KEYS)
    where = f"of '{path}'" if path else "at the top of the tree"
    return CannotStore(
        f"the key {name!r} {where} has the type {type(name).__name__}: expected a string or a number.",
        leaf=path,
        remedy="Use strings or numbers as keys.",
    )


_KEYS = frozenset({str, int, float, bool, tuple})
_PLAIN: dict[type, Opener] = {
    OrderedDict: _open_ordered,
    dict: _open_dict,
    defaultdict: _open_dict,
    list: _open_list,
    tuple: _open_tuple,
}
