"""Read the arguments of a JAX call: what a program is compiled for, and what must be equal on all ranks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from allranks.digest import digest, show
from allranks.gate.lockstep.steps import LoopElement
from allranks.gate.lockstep.variants import Name, Signature
from allranks.world.guards import jax as inside

# The name under which JAX's settings count among a function's arguments.
SETTINGS = "jax.config"
# So many values of one call are compared by name, the rest by one digest.
_MOST_VALUES = 256


def read_signature(name: Name, args: Sequence[Any], kwargs: Mapping[str, Any], *, by_value: bool) -> Signature:
    """Return the signature of one argument: its shapes, dtypes and shardings.

    With ``by_value``, Python numbers count with their values. For JAX's settings ``by_value`` makes no difference. None
    for an argument that is not given.
    """
    if name == SETTINGS:
        return tuple(inside.settings())
    given = args[name : name + 1] if isinstance(name, int) else [kwargs[name]] if name in kwargs else []
    if not given:
        return None
    leaves, tree = jax.tree.flatten(given[0])
    return tree, *map(_value_of_leaf if by_value else _form_of_leaf, leaves)


def _value_of_leaf(leaf: Any) -> Signature:
    return (type(leaf), leaf) if isinstance(leaf, bool | int | float | complex) else _form_of_leaf(leaf)


def _form_of_leaf(leaf: Any) -> Signature:
    if isinstance(leaf, jax.Array):
        return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False), leaf.sharding  # (keys have none)
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return leaf.shape, leaf.dtype
    if isinstance(leaf, bool | int | float | complex) or not isinstance(leaf, Hashable):
        return str(type(leaf))
    return leaf


def replicated_arguments(args: Sequence[Any], kwargs: Mapping[str, Any] = MappingProxyType({})) -> list[LoopElement]:
    """Return those arguments that must be equal on all ranks: values and arrays of this process only.

    Random keys are left out, because they may differ between ranks.
    """
    given = jax.tree_util.tree_leaves_with_path((tuple(args), dict(kwargs)))
    found = [
        LoopElement(_argument_name(path), _describe_leaf(leaf), "") for path, leaf in given if _is_replicated(leaf)
    ]
    rest = found[_MOST_VALUES:]
    if rest:
        reported = show(digest(*(word for label in rest for word in label[:2])))[:8]
        found[_MOST_VALUES:] = [
            LoopElement(f"{len(rest)} more from {rest[0].loop} on", f"with the digest {reported}", "")
        ]
    return found


def _is_replicated(leaf: Any) -> bool:
    if isinstance(leaf, jax.Array):
        return leaf.is_fully_addressable and not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
    return isinstance(leaf, bool | int | float | complex | np.ndarray | np.generic)


def _argument_name(path: Sequence[Any]) -> str:
    """Return the name of a path in positional and keyword arguments, e.g. ``argument 2['rate']``."""
    kind, first, *rest = path
    name = f"argument {first.idx + 1}" if kind.idx == 0 else f"argument {first.key!r}"
    return name + jax.tree_util.keystr(tuple(rest))


def _describe_leaf(leaf: Any) -> str:
    """Return the text of a scalar, e.g. ``0.1``, or the shape, the dtype and a digest of the elements of an array."""
    value = np.asarray(leaf)
    if value.ndim == 0:
        return str(value[()])
    elements = digest(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    return f"{value.dtype}{list(value.shape)} with the digest {show(elements)[:8]}"


def describe_argument(argument: Any) -> str:
    """Return a description of an argument, e.g. ``float32[8, 128] P('data', None)``.

    The sharding of an array of only one process is left out, because it differs between ranks.
    """
    sharding = getattr(argument, "sharding", None)
    split = getattr(sharding, "spec", None) or (None if getattr(sharding, "is_fully_addressable", True) else sharding)
    shape = ", ".join(map(str, getattr(argument, "shape", ())))
    return f"{getattr(argument, 'dtype', type(argument).__name__)}[{shape}]{f' {split}' if split else ''}"
