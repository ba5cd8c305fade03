"""Describe and open trees of any framework. Imports no framework that the program has not imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import cast

from allranks.arrays.base import ArrayBackend, Leaf, OpenTree
from allranks.arrays.flat_tree import FlatTree
from allranks.arrays.leaves.base import LeafAdapter, OpenContext
from allranks.arrays.saved_tree import SavedTree
from allranks.errors import AllranksError

# The adapter for leaves and nodes of each module that the program has imported; the first that claims one gets it.
_LEAVES = {
    "numpy": "allranks.arrays.leaves.numpy",
    "flax.nnx": "allranks.arrays.leaves.flax",
    "equinox": "allranks.arrays.leaves.equinox.jax",
    "jax": "allranks.arrays.leaves.jax",
    "torch.distributed.tensor": "allranks.arrays.leaves.dtensor.torch",
    "torch": "allranks.arrays.leaves.torch",
}


def describe(tree: object) -> tuple[Leaf, ...]:
    """Return a description of each array of a tree: path, shape, dtype, sharding, and bytes on one device.

    The tree is a pytree of JAX, a torch module, or nested mappings. No data moves; a rank may call it without the
    others.
    """
    return _backend_of(tree).describe(tree)


def open_tree(
    tree: object,
    *,
    rank: int,
    size: int,
    for_restore: bool = False,
    for_comparison: bool = False,
    skip_unknown: bool = False,
    saved: SavedTree | None = None,
    choose: Callable[[Sequence[str]], Mapping[str, str]] | None = None,
) -> OpenTree:
    """Return a flattened state, to be saved or, if ``for_restore``, to be filled and rebuilt. Every rank calls it.

    Containers, pytrees and objects with ``state_dict()`` and ``load_state_dict()`` are opened. Arrays of JAX, NumPy and
    PyTorch and JSON values are leaves. No data moves. Raises CannotStore, which names every leaf of another type.

    ``for_comparison``: an object with a method ``alike()``, such as a loader's snapshot, is opened as the JSON that the
    method returns. A function is a leaf whose value is its name.
    ``skip_unknown``: list leaves of other types in ``skipped`` instead of raising CannotStore.
    ``saved``: the checkpoint from which optimizers and schedules take their structure.
    ``choose``: returns, for paths whose leaf differs over the ranks, "main" (save rank 0's) or "rank" (save each
    rank's). Leaves that torch itself copies from rank 0 are always rank 0's.
    """
    adapters = [cast(LeafAdapter, import_module(name)) for needs, name in _LEAVES.items() if needs in sys.modules]
    context = OpenContext(rank, size, for_restore, for_comparison, skip_unknown, saved, choose=choose)
    return FlatTree(tree, adapters, context)


def import_backend(framework: str) -> ModuleType:
    """Return ``arrays/jax.py`` or ``arrays/torch.py``; importing it imports the framework."""
    return import_module(f"allranks.arrays.{framework}")


def _backend_of(tree: object) -> ArrayBackend:
    for framework in ("torch", "jax"):
        if framework in sys.modules:
            backend = cast(ArrayBackend, import_backend(framework))
            if backend.owns(tree):
                return backend
    raise AllranksError(
        "describe: the tree has no JAX array and no torch tensor: expected at least one array or tensor."
    )
