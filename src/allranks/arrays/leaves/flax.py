"""Flax NNX: modules, optimizers and random streams, known by their ``nnx.state`` and filled in place.

A node is JAX's pytree too, but as that it has bookkeeping among its leaves, and would come back as another object. What
two places share (tied weights) stands in the state once. Its arrays are JAX's.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from flax import nnx

from allranks.arrays.leaves.base import OpenContext
from allranks.arrays.walk import Branch, Opener, stateful

_Node: Any = getattr(nnx, "Pytree", None) or nnx.Object  # its name in Flax before 0.12


def claims(_kind: type) -> bool:
    return False


def opener(node: object, _context: OpenContext) -> Opener | None:
    return _open if isinstance(node, _Node) else None


def _open(node: Any) -> Branch:
    return stateful(node, nnx.state(node), partial(nnx.update, node))
