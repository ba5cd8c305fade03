"""Open Flax NNX modules, optimizers and random streams by their ``nnx.state``, and fill them in place.

Such a node is a JAX pytree, too. But that pytree has bookkeeping among its leaves, and a restore of it would make
another object. A value that occurs in two places (tied weights) is in the state once. The arrays are handled as JAX's.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from flax import nnx

from allranks.arrays.leaves.base import OpenContext
from allranks.arrays.walk import OpenedNode, Opener, stateful_node

_Node: Any = getattr(nnx, "Pytree", None) or nnx.Object  # its name in Flax before 0.12


def claims(_kind: type) -> bool:
    return False


def opener(node: object, _context: OpenContext) -> Opener | None:
    return _open_module if isinstance(node, _Node) else None


def _open_module(node: Any) -> OpenedNode:
    return stateful_node(node, nnx.state(node), partial(nnx.update, node))
