"""Compute CRC-32C of many records at once with NumPy, as TFRecord files have it."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_CHUNK = 256  # bytes, of which all chunks are computed side by side
_MASK = 0xA282EAD8
Words = NDArray[np.uint32]


@cache
def _table() -> Words:
    """Return, for each byte, the register after it, if the register was zero before."""
    found = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        found = np.where(found & 1, (found >> 1) ^ np.uint32(_POLYNOMIAL), found >> 1).astype(np.uint32)
    return found


@cache
def _shift_tables() -> Words:
    """Return, for each of the four bytes of a register, what is left of it after a chunk of zeros: (4, 256)."""
    found = np.concatenate([np.arange(256, dtype=np.uint32) << np.uint32(8 * place) for place in range(4)])
    for _ in range(_CHUNK):
        found = _table()[found & 0xFF] ^ (found >> np.uint32(8))
    return found.reshape(4, 256)


def masked_crcs(data: bytes, bounds: NDArray[np.int64]) -> Words:
    """Return the masked CRC-32C of each record; record i is at the bytes ``bounds[i]`` to ``bounds[i + 1]``.

    A register begins with ones, which is the same as inverting the first four bytes. Zeros before these change nothing,
    so that each record is filled up to complete chunks.
    """
    letters = np.frombuffer(data, np.uint8)
    sizes = np.diff(bounds)
    padded = np.maximum(-(-sizes // _CHUNK), 1) * _CHUNK
    ends = np.cumsum(padded)
    filled = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    starts = ends - sizes
    places = np.repeat(starts - bounds[:-1], sizes) + np.arange(bounds[0], bounds[-1])
    filled[places] = letters[bounds[0] : bounds[-1]]
    long = sizes >= 4
    for byte in range(4):
        filled[starts[long] + byte] ^= 0xFF
    chunks = filled.reshape(-1, _CHUNK)
    registers = np.zeros(len(chunks), np.uint32)
    table = _table()
    for column in range(_CHUNK):
        registers = table[(registers ^ chunks[:, column]) & 0xFF] ^ (registers >> np.uint32(8))
    found = _join_chunks(registers, (padded // _CHUNK).astype(np.int64))
    for short in np.flatnonzero(~long).tolist():
        found[short] = _register_of(data[bounds[short] : bounds[short + 1]])
    crcs = ~found
    return ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + np.uint32(_MASK)


def _join_chunks(registers: Words, counts: NDArray[np.int64]) -> Words:
    """Return the register of each record from those of its chunks."""
    shift = _shift_tables()
    first = np.cumsum(counts) - counts
    found = registers[first].copy() if len(first) else np.zeros(0, np.uint32)
    for number in range(1, int(counts.max(initial=1))):
        here = np.flatnonzero(counts > number)
        old = found[here]
        moved = shift[0][old & 0xFF] ^ shift[1][old >> np.uint32(8) & 0xFF] ^ shift[2][old >> np.uint32(16) & 0xFF]
        found[here] = moved ^ shift[3][old >> np.uint32(24)] ^ registers[first[here] + number]
    return found


def _register_of(data: bytes) -> int:
    register, table = 0xFFFFFFFF, _table()
    for letter in data:
        register = int(table[(register ^ letter) & 0xFF]) ^ (register >> 8)
    return register
