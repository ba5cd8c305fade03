"""Compute a digest of every copy that this process holds, on the device that holds the copy."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from allranks.arrays.base import CellCopy, DeclaredArray, FillTarget, OpenTree
from allranks.arrays.grid import cell_extent
from allranks.arrays.leaves.numpy import DTYPES
from allranks.consistency import numpy as on_host
from allranks.consistency.detect import device_fingerprints
from allranks.consistency.fingerprint import Fingerprint, WordLayout, uint32s_per_element, used_bits, word_layout
from allranks.digest import hasher_by_name

# The bytes of a digest. The eight bytes of a fingerprint are padded.
QUICK, PROOF = 16, 32

Copies = Sequence[tuple[CellCopy, ...]]


def digests_of_copies(declared_arrays: Sequence[DeclaredArray], copies: Copies, *, is_proof: bool) -> list[list[bytes]]:
    """Return a digest of each copy of each array: XXH3 of bytes in host memory, the fingerprint on a device.

    With ``is_proof``, it is BLAKE3 of path, dtype, shape, position and bytes; then bytes on devices are copied to the
    host.
    """
    pairs = list(zip(declared_arrays, copies, strict=True))
    if is_proof:
        return [[_proof_digest(one, copy) for copy in of] for one, of in pairs]
    quick = hasher_by_name("xxh3-128")
    found = [
        [bytes.fromhex(quick(_copy_bytes(one, copy).data)) if copy.on_host else b"" for copy in of] for one, of in pairs
    ]
    for array, pairs_of in _on_devices(pairs):
        found[array] = [b"".join(half.to_bytes(QUICK // 2, "little") for half in pair) for pair in pairs_of]
    return found


def fingerprints_of_copies(declared_arrays: Sequence[DeclaredArray], copies: Copies) -> list[list[Fingerprint]]:
    """Return the fingerprint of each copy of each array, on host or device."""
    pairs = list(zip(declared_arrays, copies, strict=True))
    found = [[_on_host(one, copy) if copy.on_host else (0, 0) for copy in of] for one, of in pairs]
    for array, pairs_of in _on_devices(pairs):
        found[array] = pairs_of
    return found


def digest_of_value(value: object, *, is_proof: bool) -> bytes:
    """Return the digest of a JSON value: BLAKE3 with ``is_proof``, XXH3 without."""
    return bytes.fromhex(hasher_by_name("blake3" if is_proof else "xxh3-128")(json.dumps(value).encode()))


def _on_devices(pairs: Sequence[tuple[DeclaredArray, tuple[CellCopy, ...]]]) -> Iterator[tuple[int, list[Fingerprint]]]:
    """Yield (array number, fingerprints of its copies) for each array that is not in host memory."""
    of: defaultdict[str, list[int]] = defaultdict(list)
    for array, (_, copies) in enumerate(pairs):
        if copies and not copies[0].on_host:
            of[copies[0].framework].append(array)
    for framework, arrays in of.items():
        leaves = [
            ([copy.part for copy in pairs[array][1]], [_word_layout(pairs[array][0], copy) for copy in pairs[array][1]])
            for array in arrays
        ]
        yield from zip(arrays, device_fingerprints(framework).fingerprints(leaves), strict=True)


def _word_layout(one: DeclaredArray, copy: CellCopy) -> WordLayout:
    return word_layout(
        one.shape,
        cell_extent(copy.cell, one.shape, one.split.cuts),
        per_element=uint32s_per_element(DTYPES[one.dtype].itemsize),
    )


def _on_host(one: DeclaredArray, copy: CellCopy) -> Fingerprint:
    return on_host.fingerprint_box(
        copy.fetch(), _word_layout(one, copy), dtype=one.dtype, itemsize=DTYPES[one.dtype].itemsize
    )


def _copy_bytes(one: DeclaredArray, copy: CellCopy) -> NDArray[np.uint8]:
    """Return the bytes of a copy. In dtypes narrower than a byte, the unused bits are set to zero."""
    data = copy.fetch()
    bits = used_bits(one.dtype, 1)
    return data & np.uint8((1 << bits) - 1) if bits < 8 else data


def _proof_digest(one: DeclaredArray, copy: CellCopy) -> bytes:
    extent = cell_extent(copy.cell, one.shape, one.split.cuts)
    stream = hasher_by_name("blake3").stream()
    stream.update(json.dumps([one.path, one.dtype, one.kind, one.shape, extent.offset, extent.shape]).encode())
    stream.update(_copy_bytes(one, copy).data)
    return bytes.fromhex(stream.hexdigest())


def digest_of_arrays(tree: OpenTree, array_numbers: Sequence[int]) -> str:
    """Return a digest of everything that this rank holds of some arrays; "" if the arrays hold no data."""
    copies = [tree.copies_of_array(number) for number in array_numbers]
    if not any(copies):
        return ""
    pairs = [(tree.declared_arrays[number], of) for number, of in zip(array_numbers, copies, strict=True)]
    # In host memory two threads are twice as fast. Devices compute their own fingerprints.
    halves = [pairs[::2], pairs[1::2]] if all(one.on_host for of in copies for one in of) else [pairs]
    with ThreadPoolExecutor(len(halves)) as pool:
        found = list(pool.map(_digests_in_host_memory, halves))
    return hasher_by_name("xxh3-128")(b"".join(one for half in found for said in half for one in said))


def digest_of_memory(targets_by_leaf: Sequence[tuple[str, FillTarget]]) -> str:
    """Return a digest of the memory of all targets."""

    def half(number: int) -> str:
        stream = hasher_by_name("xxh3-128").stream()
        for _, target in targets_by_leaf[number::2]:
            stream.update(np.ascontiguousarray(target.buffer).reshape(-1).view(np.uint8).data)
        return stream.hexdigest()

    with ThreadPoolExecutor(2) as pool:
        return hasher_by_name("xxh3-128")("".join(pool.map(half, (0, 1))).encode())


def _digests_in_host_memory(pairs: Sequence[tuple[DeclaredArray, tuple[CellCopy, ...]]]) -> list[list[bytes]]:
    return digests_of_copies([one for one, _ in pairs], [of for _, of in pairs], is_proof=False)
