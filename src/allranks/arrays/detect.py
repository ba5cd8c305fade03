"""The face of this part, for whichever framework a tree comes from; imports none that the program has not imported."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, TypeVar, cast

from allranks.arrays import agreement
from allranks.arrays.base import Backend, Gathering, Leaf
from allranks.digest import show
from allranks.errors import AllranksError, Mismatch, name_ranks

T = TypeVar("T")


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


def global_batch(
    mesh: Any,
    rows: T,
    *,
    axis: str | tuple[str, ...] | None = None,
    global_rows: int | None = None,
    world: Gathering | None = None,
) -> T:
    """Return every rank's ``rows`` as one global batch: a tree of jax.Array, cut along rows over the mesh's ``axis``.

    ``mesh`` is a jax.sharding.Mesh; ``rows`` is a tree of NumPy arrays whose first dimension counts the rows that *this* rank brings; the batch holds
    them in the order of the mesh's devices. ``axis`` names the mesh axes that cut the batch (default: the only axis).
    No byte travels between ranks. Every rank must call it before the batch is used.

    Raises BatchMismatch on rows that do not add up: leaves with different numbers of rows, rows that do not divide over
    this rank's devices, and, with ``global_rows``, a number of rows that does not make that many over all ranks. With
    ``world``, all ranks compare their rows when they see new shapes (so every rank must see them at the same call), and
    all raise if shapes or dtypes differ, or if two ranks bring the same rows for different parts of the batch.
    """
    from allranks.arrays import jax as backend

    return backend.global_batch(mesh, rows, axis=axis, global_rows=global_rows, world=world)


def _backend(tree: object) -> Backend:
    for framework in ("torch", "jax"):
        if framework in sys.modules:
            backend = cast(Backend, import_module(f"allranks.arrays.{framework}"))
            if backend.owns(tree):
                return backend
    raise AllranksError("there is no JAX array and no torch tensor in this tree.")
