"""Provide the adapter for Equinox modules: functions in them (activations, any callable) are kept, not saved."""

from __future__ import annotations

import equinox as eqx
import jax

from allranks.arrays.leaves.base import OpenContext
from allranks.arrays.leaves.jax import open_node
from allranks.arrays.walk import OpenedNode, Opener


def claims(_kind: type) -> bool:
    return False


def opener(node: object, context: OpenContext) -> Opener | None:
    # Between ranks, functions are compared by name: JAX's opener keeps them.
    return None if context.for_comparison or not isinstance(node, eqx.Module) else _open_module


def _open_module(node: object) -> OpenedNode:
    functions, rest = eqx.partition(node, callable)
    if not jax.tree.leaves(functions):
        return open_node(node)
    return OpenedNode(None, (rest,), lambda made: eqx.combine(made[0], functions))
