"""Repair a state: send the majority's values to the ranks that differ, through the key-value store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.arrays.base import OpenTree
from allranks.arrays.grid import cell_extent, cell_number_of
from allranks.arrays.leaves.numpy import DTYPES
from allranks.consistency.digests import Copies
from allranks.consistency.elements import bytes_of_copy, sender_of_group
from allranks.consistency.plan import VALUE, ComparedEntry
from allranks.consistency.verdict import Difference
from allranks.world.base import World
from allranks.world.codec import dumps, loads

Case = tuple[ComparedEntry, Difference]

# The bytes of one key of the store, and of all keys at a time.
_PIECE, _LOAD = 1 << 20, 64 << 20


def repair_state(world: World, state: object, tree: OpenTree, copies: Copies, decided_cases: Sequence[Case]) -> object:
    """Return the state with the majority's values for all differences. **Every rank must call.**

    All cases must be decided. Tensors, modules and NumPy arrays are changed in place; JAX arrays are new in the
    returned state.
    """
    arrays: defaultdict[int, dict[int, NDArray[np.uint8]]] = defaultdict(dict)
    values: dict[str, Any] = {}
    for load in _batches_of_cases(tree, decided_cases):
        put = [key for number, case in load for key in _send_copy(world, number, case, tree, copies)]
        for number, (entry, one) in load:
            if world.rank not in one.ranks:
                continue
            data = _receive_copy(world, number)
            if entry.array == VALUE:
                values[entry.path] = loads(data)
            else:
                arrays[entry.array][entry.cell] = np.frombuffer(data, np.uint8)
        world.exchange("verify", "repaired", None, decide=lambda _: None)
        for key in put:
            world.store.delete(key)
    for array, received in arrays.items():
        _fill_array(tree, array, received)
    return tree.rebuild_tree({**tree.values, **values}) if arrays or values else state


def _batches_of_cases(tree: OpenTree, cases: Sequence[Case]) -> Iterator[list[tuple[int, Case]]]:
    """Yield the numbered cases in batches of about as many bytes as the store should hold; equal on every rank."""
    load: list[tuple[int, Case]] = []
    size = 0
    for number, case in enumerate(cases):
        load.append((number, case))
        size += _entry_bytes(tree, case[0])
        if size >= _LOAD:
            yield load
            load, size = [], 0
    if load:
        yield load


def _entry_bytes(tree: OpenTree, entry: ComparedEntry) -> int:
    if entry.array == VALUE:
        return 0
    one = tree.declared_arrays[entry.array]
    size: int = DTYPES[one.dtype].itemsize
    return cell_extent(entry.cell, one.shape, one.split.cuts).size * size


def _send_copy(world: World, number: int, case: Case, tree: OpenTree, copies: Copies) -> list[str]:
    """If this rank sends the case's majority copy, put the copy into the store. Return the keys it has set."""
    entry, one = case
    rank, device = sender_of_group(one.groups[0])
    if world.rank != rank:
        return []
    is_value = entry.array == VALUE
    data = dumps(tree.values[entry.path]) if is_value else bytes_of_copy(copies, entry, device).tobytes()
    pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
    keys = [f"repair/{number}/{place}" for place in range(len(pieces))]
    for key, piece in zip(keys, pieces, strict=True):
        world.store.set(key, piece)
    world.store.set(f"repair/{number}", dumps(len(pieces)))
    return [*keys, f"repair/{number}"]


def _receive_copy(world: World, number: int) -> bytes:
    many = int(loads(world.store.wait(f"repair/{number}", world.timeout)))
    return b"".join(world.store.wait(f"repair/{number}/{place}", world.timeout) for place in range(many))


def _fill_array(tree: OpenTree, array: int, received: Mapping[int, NDArray[np.uint8]]) -> None:
    """Fill this rank's part of an array: with the received cells, and with its own values for all other cells."""
    one = tree.declared_arrays[array]
    own = {copy.cell: copy for copy in tree.copies_of_array(array)}
    for target in tree.targets_of_array(array):
        if target.extent.size:
            number = cell_number_of(target.extent, one.shape, one.split.cuts)
            data = received[number] if number in received else own[number].fetch()
            target.buffer[...] = data.view(DTYPES[one.dtype]).reshape(target.extent.shape)
