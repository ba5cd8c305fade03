"""Save and restore random generators as a part of a state. Each rank has its own generators."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from allranks.arrays.generators.base import Generators
from allranks.arrays.leaves.base import OpenContext
from allranks.arrays.walk import DeferredChild, OpenedNode, Opener
from allranks.digest import digest
from allranks.errors import AllranksError

# Who knows the generators of a module that the program has imported.
_KINDS = {
    "numpy": "allranks.arrays.generators.numpy",
    "torch": "allranks.arrays.generators.torch",
    "jax": "allranks.arrays.generators.jax",
}
_RANKS = "ranks"


class RandomState:
    """Random generators of this rank by name. They are saved for each rank, and restored on any number of ranks.

    A generator is a ``numpy.random.Generator`` or ``RandomState``, a ``random.Random``, a ``torch.Generator``, a JAX
    key, or one of the modules ``random``, ``numpy.random`` and ``torch`` for its global generator (``torch.cuda`` for
    that of the device). Generators are restored in place. A key is replaced: read and set it as ``state[name]``.

    If the number of ranks has changed, each rank below the saved number continues with its own state. Each other rank
    gets a state that is derived from a saved state and from its rank. No two ranks have the same state, and a second
    restore of the same step derives the same states. Raises AllranksError for an object that is not a generator.

    Examples:
        >>> random_state = RandomState(augment=np.random.default_rng([7, world.rank]), python=random, torch=torch)
        >>> ckpt.save(step, {"model": model, "random": random_state})
    """

    def __init__(self, **generators: Any) -> None:
        if _RANKS in generators:
            raise AllranksError(
                f"RandomState: the name {_RANKS!r} is reserved for the number of ranks: choose another name."
            )
        self._generators = {name: _check_generator(name, generator) for name, generator in generators.items()}

    def __getitem__(self, name: str) -> Any:
        return self._generators[name]

    def __setitem__(self, name: str, generator: Any) -> None:
        self._generators[name] = _check_generator(name, generator)

    def __iter__(self) -> Iterator[str]:
        return iter(self._generators)

    def __repr__(self) -> str:
        return f"RandomState({', '.join(self._generators)})"


def find_opener(node: object, context: OpenContext) -> Opener | None:
    """Return the function that opens a RandomState; None for any other node."""
    return partial(_open_random_state, context) if isinstance(node, RandomState) else None


def _open_random_state(context: OpenContext, node: RandomState) -> OpenedNode:
    def note(path: str) -> object:
        context.rank_local_paths.extend(f"{path}/{name}" if path else name for name in node)
        return {_RANKS: context.size, **node._generators}

    def make(children: list[Any]) -> object:
        ranks = children[0][_RANKS]
        for name in node:
            generator = children[0][name]
            node[name] = generator if context.rank < ranks else _derive_generator(name, generator, context.rank)
        return node

    return OpenedNode(None, (DeferredChild(note, follows_checkpoint=False),), make)


def _derive_generator(name: str, generator: Any, rank: int) -> Any:
    """Return the generator, reseeded with a digest of its state, its name and the rank."""
    kind = _kind_of(generator)
    assert kind is not None
    return kind.reseed(generator, digest(json.dumps([name, rank]), kind.state_of(generator)))


def _check_generator(name: str, generator: Any) -> Any:
    found = _global_generator(generator) if isinstance(generator, ModuleType) else generator
    if found is None or _kind_of(found) is None:
        raise AllranksError(
            f"RandomState: {name}={generator!r:.80}: expected a random generator.",
            remedy="Pass a generator of numpy, random or torch, a JAX key, or one of the modules random, numpy.random, "
            "torch and torch.cuda.",
        )
    return found


def loaded_adapters() -> Iterator[Generators]:
    """Yield the adapter of each library of generators that the program has imported."""
    for needs, name in _KINDS.items():
        if needs in sys.modules:
            yield import_module(name)


def _kind_of(generator: object) -> Generators | None:
    return next((kind for kind in loaded_adapters() if kind.owns(generator)), None)


def _global_generator(module: ModuleType) -> Any:
    return next((found for kind in loaded_adapters() if (found := kind.of_module(module.__name__)) is not None), None)
