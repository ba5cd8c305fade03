"""Record functions that draw random numbers on each device with one key (shard_map, pmap).

While JAX traces such a function, it shows whether the function draws, and whether it asks for the number of its device.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from allranks.rehearse.probe.draws import DrawRecorder
from allranks.rehearse.probe.record import Recorder


class MapProbe:
    """The wrappers of one process. ``draws`` tells it of draws while a function is traced."""

    def __init__(self, recorder: Recorder, draws: DrawRecorder) -> None:
        self._recorder, self._draws = recorder, draws

    def watch(self, module: Any) -> None:
        """Wrap the functions of JAX that map over devices, and the one that returns a device's number."""
        module.shard_map = self._sharding(module.shard_map)
        module.pmap = self._mapping(module.pmap)
        lax: Any = sys.modules["jax.lax"]
        index = lax.axis_index

        @functools.wraps(index)
        def axis_index(*args: Any, **options: Any) -> Any:
            self._draws.use("index")
            return index(*args, **options)

        lax.axis_index = axis_index

    def _sharding(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def shard_map(f: Any = None, /, **options: Any) -> Any:
            if f is None:
                return functools.partial(shard_map, **options)
            specs = options.get("in_specs")

            @functools.wraps(f)
            def traced(*args: Any) -> Any:
                with self._draws.tracing() as used:
                    result = f(*args)
                if "index" not in used and _has_same_key(args, specs):
                    self._write(used, [0, 0])
                return result

            return original(traced, **options)

        return shard_map

    def _mapping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def pmap(fun: Any, *args: Any, **options: Any) -> Any:
            uses: dict[str, int] = {}

            @functools.wraps(fun)
            def traced(*values: Any, **named: Any) -> Any:
                with self._draws.tracing() as used:
                    result = fun(*values, **named)
                uses.update({} if "index" in used else used)
                return result

            program = original(traced, *args, **options)

            @functools.wraps(fun)
            def mapped(*values: Any, **named: Any) -> Any:
                result = program(*values, **named)
                if uses:
                    self._write(uses, [row for value in jax.tree.leaves(values) for row in _keys(value)])
                    uses.clear()
                return result

            mapped.lower = program.lower  # type: ignore[attr-defined]
            return mapped

        return pmap

    def _write(self, used: dict[str, int], keys: list[Any]) -> None:
        for name, place in used.items():
            self._recorder.write("mapped", place=place, name=name, keys=keys)


def _has_same_key(args: Any, specs: Any) -> bool:
    """Return whether a function gets parts of its data, and no key of its own."""
    try:
        flat = jax.tree.leaves(specs, is_leaf=lambda one: isinstance(one, PartitionSpec))
        each = list(zip(args, specs, strict=True)) if isinstance(specs, tuple) else [(args, specs)]
    except ValueError:
        return False
    keyed = any(_is_key(leaf) and _is_split(spec) for arg, spec in each for leaf in jax.tree.leaves(arg))
    return any(map(_is_split, flat)) and not keyed


def _is_split(spec: Any) -> bool:
    return isinstance(spec, PartitionSpec) and any(one is not None for one in spec)


def _is_key(value: Any) -> bool:
    dtype, shape = str(getattr(value, "dtype", "")), getattr(value, "shape", ())
    return dtype.startswith("key<") or (dtype == "uint32" and shape[-1:] == (2,))


def _keys(value: Any) -> Iterator[str]:
    """Yield the keys of an argument that has one for each local device, as text."""
    if _is_key(value) and value.ndim:
        data = jax.random.key_data(value) if str(value.dtype).startswith("key<") else value
        parts = [np.asarray(shard.data) for shard in data.addressable_shards]
        rows = np.concatenate(parts) if len(parts) > 1 else parts[0]
        if rows.ndim > 1:
            yield from (row.tobytes().hex() for row in rows)
