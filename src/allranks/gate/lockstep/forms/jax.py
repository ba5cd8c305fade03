"""What JAX compiles a program for: the forms of a call's arguments, and the values of static ones."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import jax

from allranks.gate import jax as inside
from allranks.gate.lockstep.variants import Form, Name

# The name under which JAX's settings count among a function's arguments.
SETTINGS = "jax.config"


def read(name: Name, args: Sequence[Any], kwargs: Mapping[str, Any], *, by_value: bool) -> Form:
    """Return what a program is compiled for, of an argument: its form; or its form with the values of what is no array.

    Of JAX's settings both are the same. None for an argument that is not given.
    """
    if name == SETTINGS:
        return tuple(inside.settings())
    given = args[name : name + 1] if isinstance(name, int) else [kwargs[name]] if name in kwargs else []
    if not given:
        return None
    leaves, tree = jax.tree.flatten(given[0])
    return tree, *map(_value_of_leaf if by_value else _form_of_leaf, leaves)


def _value_of_leaf(leaf: Any) -> Form:
    return (type(leaf), leaf) if isinstance(leaf, bool | int | float | complex) else _form_of_leaf(leaf)


def _form_of_leaf(leaf: Any) -> Form:
    if isinstance(leaf, jax.Array):
        return leaf.shape, leaf.dtype, leaf.weak_type, leaf.sharding
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return leaf.shape, leaf.dtype
    if isinstance(leaf, bool | int | float | complex) or not isinstance(leaf, Hashable):
        return str(type(leaf))
    return leaf


def in_words(argument: Any) -> str:
    """Return ``float32[8, 128] P('data', None)``; of an array of one process not where it lies: elsewhere in each."""
    sharding = getattr(argument, "sharding", None)
    split = getattr(sharding, "spec", None) or (None if getattr(sharding, "is_fully_addressable", True) else sharding)
    shape = ", ".join(map(str, getattr(argument, "shape", ())))
    return f"{getattr(argument, 'dtype', type(argument).__name__)}[{shape}]{f' {split}' if split else ''}"
