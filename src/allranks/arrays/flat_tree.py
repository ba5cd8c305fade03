"""Flatten a tree into leaves for saving and restoring. The leaves may be of any framework."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

from allranks.arrays import codecs, random_state
from allranks.arrays.base import CellBytes, CellCopy, DeclaredArray, FillTarget
from allranks.arrays.leaves.base import ArraySpec, LeafAdapter, LeafFill, LeafRefused, OpenContext
from allranks.arrays.rank_choice import batch_statistics, is_below_any, spec_for_choice
from allranks.arrays.walk import OpenedNode, Opener, TreeWalk
from allranks.errors import CannotStore

Value = bool | int | float | str | None

_JSON: frozenset[type] = frozenset({bool, int, float, str, type(None)})
_TOLD = 8


class FlatTree:
    """The ``OpenTree`` for trees with leaves of any framework that the program has imported. Raises CannotStore."""

    def __init__(self, tree: object, adapters: Sequence[LeafAdapter], context: OpenContext) -> None:
        self._context = context
        self._adapters = adapters
        self._of_type: dict[type, LeafAdapter | None] = {}
        self._walk = TreeWalk(tree, is_leaf=self._is_leaf, opener=self._opener_of)
        self._places: list[int] = []  # of the arrays, among the leaves
        self._specs: list[ArraySpec] = []
        self.values: dict[str, Value] = {}
        self.main_values: dict[str, Value] = {}
        self.rank_values: dict[str, Value] = {}
        self._rows: set[int] = set()  # the arrays of which each rank has its own
        self.skipped_leaves: dict[str, str] = {}
        self._fills: dict[int, LeafFill] = {}
        self._tied: dict[Hashable, LeafFill] = {}
        self._done: dict[int, object] = {}  # by the id of the filling
        self._classify_leaves()

    @property
    def follows_checkpoint(self) -> bool:
        return self._walk.follows_checkpoint

    @property
    def rank_local_paths(self) -> tuple[str, ...]:
        return tuple(self._context.rank_local_paths)

    @property
    def kept_settings(self) -> dict[str, Any]:
        return self._context.kept_settings

    @cached_property
    def declared_arrays(self) -> tuple[DeclaredArray, ...]:
        return tuple(
            DeclaredArray(self._walk.paths[place], spec.shape, spec.dtype, spec.split, spec.kind, spec.per_rank)
            for place, spec in zip(self._places, self._specs, strict=True)
        )

    @cached_property
    def hash_key(self) -> Hashable:
        # Equal specs are one object, which is kept here, so that they can be compared by identity.
        paths = self._walk.paths
        return tuple([paths[place] for place in self._places]), tuple(self._specs)

    def cell_bytes(self, array: int, cell: int) -> CellBytes:
        leaf = self._walk.leaves[self._places[array]]
        return self._adapter_of(leaf).cell_bytes(leaf, 0 if array in self._rows else cell, self._context)

    def copies_of_array(self, array: int) -> tuple[CellCopy, ...]:
        leaf = self._walk.leaves[self._places[array]]
        found = self._adapter_of(leaf).copies(leaf, self._context)
        return tuple(one._replace(cell=self._context.rank) for one in found) if array in self._rows else found

    def targets_of_array(self, array: int) -> tuple[FillTarget, ...]:
        if array not in self._fills:
            leaf = self._walk.leaves[self._places[array]]
            leaf_fill = self._adapter_of(leaf).leaf_fill(leaf, self._context)
            memory = None if all(target.live for target in leaf_fill.targets) else self.memory_key(array)
            # Leaves that share a memory also share the new one.
            self._fills[array] = leaf_fill if memory is None else self._tied.setdefault(memory, leaf_fill)
        return self._fills[array].targets

    @cached_property
    def _arrays_at_one_address(self) -> frozenset[int]:
        """The numbers of the arrays that begin at the same address as another array; only these can share a memory."""
        leaves, of_type = self._walk.leaves, self._of_type
        first: dict[int, int] = {}
        found: set[int] = set()
        for number, place in enumerate(self._places):
            leaf = leaves[place]
            address = cast(LeafAdapter, of_type[type(leaf)]).address(leaf)
            if address and (other := first.setdefault(address, number)) != number:
                found |= {number, other}
        return frozenset(found)

    def memory_key(self, array: int) -> Hashable | None:
        if array not in self._arrays_at_one_address:
            return None
        leaf = self._walk.leaves[self._places[array]]
        return self._adapter_of(leaf).memory(leaf)

    @cached_property
    def tied_arrays(self) -> dict[int, int]:
        first: dict[tuple[ArraySpec, Hashable], int] = {}
        found = {}
        for number in sorted(self._arrays_at_one_address):
            spec, memory = self._specs[number], self.memory_key(number)
            if memory is None or math.prod(spec.split.cuts) > 1:
                # Other parts of it may be elsewhere: what all ranks see alike is the object. So it is where nobody
                # changes an array in place.
                memory = id(self._walk.leaves[self._places[number]])
            if (other := first.setdefault((spec, memory), number)) != number:
                found[number] = other
        return found

    @cached_property
    def encoded_arrays(self) -> tuple[int, ...]:
        places = {place for part in self._walk.parts for place in part.places}
        return tuple(number for number, place in enumerate(self._places) if place in places)

    def decode_objects(self, values: Mapping[str, Value]) -> None:
        if not self._walk.parts:
            return
        leaves = self._filled_leaves(self.encoded_arrays, values)
        for part in self._walk.parts:
            part.make_object(leaves[part.places.start : part.places.stop])

    def rebuild_tree(self, values: Mapping[str, Value]) -> object:
        return self._walk.rebuild_tree(iter(self._filled_leaves(self._fills, values)))

    def _filled_leaves(self, arrays: Iterable[int], values: Mapping[str, Value]) -> list[object]:
        """Return all leaves of the tree, with ``arrays`` and JSON values replaced by their filled contents."""
        leaves = list(self._walk.leaves)
        for array in arrays:
            leaf_fill = self._fills.get(array)
            if leaf_fill is None:
                continue
            if id(leaf_fill) not in self._done:
                self._done[id(leaf_fill)] = leaf_fill.done()
            leaves[self._places[array]] = self._done[id(leaf_fill)]
        if self.values:
            for place, path in enumerate(self._walk.paths):
                if path in self.values and type(leaves[place]) in _JSON:
                    leaves[place] = values.get(path, self.values[path])
        return leaves

    def _rank_choices(self) -> dict[str, str]:
        """Return, by path, how the saved leaf is chosen among the ranks: "rank" for each rank's, "main" for rank 0's.

        "usual" means rank 0's by default, without a choice of the user. Paths without a choice are left out.
        """
        context, paths = self._context, self._walk.paths
        if context.for_restore or context.size == 1:
            return {}
        local = context.rank_local_paths
        chosen = {path: "rank" for path in paths if is_below_any(path, local)} if local else {}
        if context.choose is None:
            return chosen
        usual = dict.fromkeys([*context.main, *batch_statistics(paths)], "usual")
        return usual | dict(context.choose(paths)) | chosen

    def _classify_leaves(self) -> None:
        chosen = self._rank_choices()
        refused: list[tuple[str, object, str, str]] = []
        for place, (path, leaf) in enumerate(zip(self._walk.paths, self._walk.leaves, strict=True)):
            kind = type(leaf)
            choice = chosen.get(path, "")
            if kind in _JSON:
                values = self.rank_values if choice == "rank" else self.main_values if choice else self.values
                values[path] = cast(Value, leaf)
                continue
            adapter = self._of_type.get(kind)
            try:
                if adapter is None and self._context.for_comparison and hasattr(leaf, "__qualname__"):
                    self.values[path] = f"{getattr(leaf, '__module__', '')}.{leaf.__qualname__}"
                    continue
                if adapter is None:
                    raise LeafRefused(*_describe_unknown(leaf))
                spec = adapter.spec(leaf, self._context)
                self._specs.append(spec_for_choice(spec, choice, self._context.size) if choice else spec)
                if self._specs[-1].per_rank:
                    self._rows.add(len(self._places))
                self._places.append(place)
            except LeafRefused as error:
                refused.append((path, leaf, error.what, error.remedy))
        if refused and self._context.skip_unknown:
            self.skipped_leaves = {path: what for path, _, what, _ in refused}
        elif refused:
            raise _cannot_store(refused, rank=self._context.rank)
        if len(set(self._walk.paths)) != len(self._walk.paths):
            raise _same_path(self._walk.paths, rank=self._context.rank)
        _check_text(self._walk.paths, rank=self._context.rank)

    def _adapter_of(self, leaf: object) -> LeafAdapter:
        return cast(LeafAdapter, self._of_type[type(leaf)])

    def _is_leaf(self, kind: type) -> bool:
        adapters = () if codecs.is_registered(kind) else self._adapters
        self._of_type[kind] = next((adapter for adapter in adapters if adapter.claims(kind)), None)
        return kind in _JSON or self._of_type[kind] is not None

    def _opener_of(self, node: object) -> Opener | None:
        if self._context.for_comparison and callable(getattr(node, "alike", None)):
            return _open_for_comparison
        if found := codecs.find_opener(node, self._context) or random_state.find_opener(node, self._context):
            return found
        openers = (adapter.opener(node, self._context) for adapter in self._adapters)
        return next((opener for opener in openers if opener), None)


def _open_for_comparison(node: Any) -> OpenedNode:
    return OpenedNode(None, (node.alike(),), lambda _: node)


def _describe_unknown(leaf: object) -> tuple[str, str]:
    """Return what kind of object an unknown leaf is, and what the user can do about it."""
    kind = f"{type(leaf).__module__}.{type(leaf).__qualname__}".removeprefix("builtins.")
    if callable(leaf):
        name = getattr(leaf, "__qualname__", repr(leaf))
        return (
            f"a {kind} ({name})",
            "Keep functions out of the state, for example with eqx.filter(model, eqx.is_array).",
        )
    remedies: dict[type, str] = {
        set: "Store sorted(value), a list.",
        frozenset: "Store sorted(value), a list.",
    }
    known = next((remedies[base] for base in type(leaf).__mro__ if base in remedies), None)
    name = type(leaf).__qualname__
    return kind, known or (
        "Leave it out, make its type a dataclass, give it state_dict() and load_state_dict(), or "
        "register how it is stored: "
        f"allranks.checkpoint.register_type({name}, encode, decode)."
    )


def _cannot_store(refused: Sequence[tuple[str, object, str, str]], *, rank: int) -> CannotStore:
    told = "; ".join(f"'{path}' is {what}" for path, _, what, _ in refused[:_TOLD])
    more = f"; and {len(refused) - _TOLD} more" if len(refused) > _TOLD else ""
    count = "a leaf" if len(refused) == 1 else f"{len(refused)} leaves"
    remedies = dict.fromkeys(remedy for *_, remedy in refused[:_TOLD])
    return CannotStore(
        f"rank {rank}: {count} of the state cannot be stored: {told}{more}.",
        ranks=(rank,),
        leaf=refused[0][0],
        remedy=" ".join(remedies),
    )


def _check_text(paths: Sequence[str], *, rank: int) -> None:
    try:
        "".join(paths).encode()
    except UnicodeEncodeError as error:
        path = next(path for path in paths if error.object[error.start] in path)
        raise CannotStore(
            f"rank {rank}: the path {path!r} is not Unicode text ({error.reason}).", ranks=(rank,), leaf=path
        ) from None


def _same_path(paths: Sequence[str], *, rank: int) -> CannotStore:
    twice = [path for path, count in Counter(paths).items() if count > 1]
    return CannotStore(
        f"rank {rank}: several leaves have the same path: {', '.join(map(repr, twice[:_TOLD]))}.",
        ranks=(rank,),
        leaf=twice[0],
        remedy="Rename one: keys that differ only by type (1 and '1'), or that contain '/', can collide.",
    )
