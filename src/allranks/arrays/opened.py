"""A tree taken apart for saving and restoring, of whichever frameworks its leaves are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

from allranks.arrays import codecs, random_state
from allranks.arrays.base import Copy, Declared, Held, Target
from allranks.arrays.chosen import batch_statistics, chosen_spec, is_at
from allranks.arrays.leaves.base import Adapter, Filling, Here, Refused, Spec
from allranks.arrays.walk import Branch, Opener, Walk
from allranks.errors import CannotStore

Value = bool | int | float | str | None

_JSON: frozenset[type] = frozenset({bool, int, float, str, type(None)})
_TOLD = 8


class Opened:
    """``OpenTree`` over the adapters of the frameworks that the program has imported. Raises CannotStore."""

    def __init__(self, tree: object, adapters: Sequence[Adapter], here: Here) -> None:
        self._here = here
        self._adapters = adapters
        self._of_type: dict[type, Adapter | None] = {}
        self._walk = Walk(tree, is_leaf=self._is_leaf, opener=self._opener)
        self._places: list[int] = []  # of the arrays, among the leaves
        self._specs: list[Spec] = []
        self.values: dict[str, Value] = {}
        self.main_values: dict[str, Value] = {}
        self.rank_values: dict[str, Value] = {}
        self._rows: set[int] = set()  # the arrays that each rank has for itself
        self.passed: dict[str, str] = {}
        self._fillings: dict[int, Filling] = {}
        self._tied: dict[Hashable, Filling] = {}
        self._done: dict[int, object] = {}  # by the id of the filling
        self._sort_leaves()

    @property
    def follows(self) -> bool:
        return self._walk.follows

    @property
    def dealt(self) -> tuple[str, ...]:
        return tuple(self._here.dealt)

    @property
    def kept(self) -> dict[str, Any]:
        return self._here.kept

    @cached_property
    def declared(self) -> tuple[Declared, ...]:
        return tuple(
            Declared(self._walk.paths[place], spec.shape, spec.dtype, spec.split, spec.kind, spec.per_rank)
            for place, spec in zip(self._places, self._specs, strict=True)
        )

    @cached_property
    def key(self) -> Hashable:
        # Of equal specs there is one object, and this holds on to it: so they are compared by identity.
        paths = self._walk.paths
        return tuple([paths[place] for place in self._places]), tuple(self._specs)

    def held(self, array: int, cell: int) -> Held:
        leaf = self._walk.leaves[self._places[array]]
        return self._adapter(leaf).held(leaf, 0 if array in self._rows else cell, self._here)

    def copies(self, array: int) -> tuple[Copy, ...]:
        leaf = self._walk.leaves[self._places[array]]
        found = self._adapter(leaf).copies(leaf, self._here)
        return tuple(one._replace(cell=self._here.rank) for one in found) if array in self._rows else found

    def targets(self, array: int) -> tuple[Target, ...]:
        if array not in self._fillings:
            leaf = self._walk.leaves[self._places[array]]
            filling = self._adapter(leaf).filling(leaf, self._here)
            memory = None if all(target.live for target in filling.targets) else self.memory(array)
            # Leaves of one memory that get a new one are one there, too.
            self._fillings[array] = filling if memory is None else self._tied.setdefault(memory, filling)
        return self._fillings[array].targets

    @cached_property
    def _aliases(self) -> frozenset[int]:
        """The arrays that begin where another one does: of few, so that the rest need no second look."""
        leaves, of_type = self._walk.leaves, self._of_type
        first: dict[int, int] = {}
        found: set[int] = set()
        for number, place in enumerate(self._places):
            leaf = leaves[place]
            address = cast(Adapter, of_type[type(leaf)]).address(leaf)
            if address and (other := first.setdefault(address, number)) != number:
                found |= {number, other}
        return frozenset(found)

    def memory(self, array: int) -> Hashable | None:
        if array not in self._aliases:
            return None
        leaf = self._walk.leaves[self._places[array]]
        return self._adapter(leaf).memory(leaf)

    @cached_property
    def ties(self) -> dict[int, int]:
        first: dict[tuple[Spec, Hashable], int] = {}
        found = {}
        for number in sorted(self._aliases):
            spec, memory = self._specs[number], self.memory(number)
            if memory is None or math.prod(spec.split.cuts) > 1:
                # Other parts of it may be elsewhere: what all ranks see alike is the object. So it is where nobody
                # changes an array in place.
                memory = id(self._walk.leaves[self._places[number]])
            if (other := first.setdefault((spec, memory), number)) != number:
                found[number] = other
        return found

    @cached_property
    def encoded(self) -> tuple[int, ...]:
        places = {place for part in self._walk.parts for place in part.places}
        return tuple(number for number, place in enumerate(self._places) if place in places)

    def decode(self, values: Mapping[str, Value]) -> None:
        if not self._walk.parts:
            return
        leaves = self._filled(self.encoded, values)
        for part in self._walk.parts:
            part.make(leaves[part.places.start : part.places.stop])

    def rebuild(self, values: Mapping[str, Value]) -> object:
        return self._walk.make(iter(self._filled(self._fillings, values)))

    def _filled(self, arrays: Iterable[int], values: Mapping[str, Value]) -> list[object]:
        """Return the leaves, of these arrays with the contents of their targets."""
        leaves = list(self._walk.leaves)
        for array in arrays:
            filling = self._fillings.get(array)
            if filling is None:
                continue
            if id(filling) not in self._done:
                self._done[id(filling)] = filling.done()
            leaves[self._places[array]] = self._done[id(filling)]
        if self.values:
            for place, path in enumerate(self._walk.paths):
                if path in self.values and type(leaves[place]) in _JSON:
                    leaves[place] = values.get(path, self.values[path])
        return leaves

    def _choose(self) -> dict[str, str]:
        """Return the paths of leaves of which each rank's is meant ("rank"), or rank 0's ("main"; where nobody said so,
        "usual").
        """
        here, paths = self._here, self._walk.paths
        if here.restoring or here.size == 1:
            return {}
        chosen = {path: "rank" for path in paths if is_at(path, here.dealt)} if here.dealt else {}
        if here.choose is None:
            return chosen
        usual = dict.fromkeys([*here.main, *batch_statistics(paths)], "usual")
        return usual | dict(here.choose(paths)) | chosen

    def _sort_leaves(self) -> None:
        chosen = self._choose()
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
                if adapter is None and self._here.comparing and hasattr(leaf, "__qualname__"):
                    self.values[path] = f"{getattr(leaf, '__module__', '')}.{leaf.__qualname__}"
                    continue
                if adapter is None:
                    raise Refused(*_stranger(leaf))
                spec = adapter.spec(leaf, self._here)
                self._specs.append(chosen_spec(spec, choice, self._here.size) if choice else spec)
                if self._specs[-1].per_rank:
                    self._rows.add(len(self._places))
                self._places.append(place)
            except Refused as error:
                refused.append((path, leaf, error.what, error.remedy))
        if refused and self._here.passing:
            self.passed = {path: what for path, _, what, _ in refused}
        elif refused:
            raise _cannot_store(refused, rank=self._here.rank)
        if len(set(self._walk.paths)) != len(self._walk.paths):
            raise _same_path(self._walk.paths, rank=self._here.rank)
        _check_text(self._walk.paths, rank=self._here.rank)

    def _adapter(self, leaf: object) -> Adapter:
        return cast(Adapter, self._of_type[type(leaf)])

    def _is_leaf(self, kind: type) -> bool:
        adapters = () if codecs.is_registered(kind) else self._adapters
        self._of_type[kind] = next((adapter for adapter in adapters if adapter.claims(kind)), None)
        return kind in _JSON or self._of_type[kind] is not None

    def _opener(self, node: object) -> Opener | None:
        if self._here.comparing and callable(getattr(node, "alike", None)):
            return _open_alike
        if found := codecs.opener(node, self._here) or random_state.opener(node, self._here):
            return found
        openers = (adapter.opener(node, self._here) for adapter in self._adapters)
        return next((opener for opener in openers if opener), None)


def _open_alike(node: Any) -> Branch:
    return Branch(None, (node.alike(),), lambda _: node)


def _stranger(leaf: object) -> tuple[str, str]:
    """Return what a leaf of no known kind is, and what its owner can do."""
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
        "Leave it out, make its type a dataclass, give it state_dict() and load_state_dict(), or say how it is stored: "
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
        f"rank {rank}: several leaves have one path: {', '.join(map(repr, twice[:_TOLD]))}.",
        ranks=(rank,),
        leaf=twice[0],
        remedy="Keys that differ by type only (1 and '1'), or that contain '/', can collide: rename one.",
    )
