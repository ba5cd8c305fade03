"""The face of this part, for whichever framework a tree comes from; imports none that the program has not imported."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import cast

from allranks.arrays import agreement
from allranks.arrays.base import Backend, Gathering, Leaf
from allranks.digest import show
from allranks.errors import AllranksError, Mismatch, name_ranks


def describe(tree: object) -> tuple[Leaf, ...]:
    """Return the arrays of a tree (JAX's pytree; a torch module or nested mappings): path, shape, dtype, how each is
    split, and the bytes that a device holds. No byte moves; any rank may call it alone.
    """
    return _backend(tree).describe(tree)


def tree_digest(tree: object, world: Gathering) -> str:
    """Return a digest of the whole tree, the same on every rank, of all shards and wherever they are.

    Every rank must call it. Raises Mismatch on every rank, naming leaves and ranks, where replicas of the same values
    differ. The digest depends on how the leaves are cut: compare it between runs on the same mesh only.
    """
    held = _backend(tree).pieces(tree, rank=world.rank, size=world.size)
    total, odd = agreement.judge(world.all_gather(agreement.words(held, by_leaf=False), name="tree_digest"))
    if not odd:
        return show(total)
    _, odd = agreement.judge(world.all_gather(agreement.words(held, by_leaf=True), name="tree_digest by leaf"))
    told = "; ".join(f"leaf '{one.path}' on {name_ranks(one.ranks)}" for one in odd[:8])
    raise Mismatch(
        f"rank {world.rank}: replicas differ: {told}{f'; and {len(odd) - 8} more leaves' if len(odd) > 8 else ''}.",
        ranks={rank for one in odd for rank in one.ranks},
        leaf=odd[0].path,
        remedy="They should be equal on every rank: were they loaded, seeded or stepped on some ranks only?",
    )


def backend_named(framework: str) -> ModuleType:
    """Return ``arrays/jax.py`` or ``arrays/torch.py``; importing it imports the framework."""
    return import_module(f"allranks.arrays.{framework}")


def _backend(tree: object) -> Backend:
    for framework in ("torch", "jax"):
        if framework in sys.modules:
            backend = cast(Backend, backend_named(framework))
            if backend.owns(tree):
                return backend
    raise AllranksError("there is no JAX array and no torch tensor in this tree.")
