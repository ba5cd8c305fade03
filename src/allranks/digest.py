"""Digests of bytes: XXH3-128, as fast as memory. Against accidents and bugs, not against an attacker."""

from __future__ import annotations

from collections.abc import Iterable

import xxhash

BITS = 128


def digest(*parts: bytes | memoryview | str) -> int:
    """Return a 128-bit digest of the parts; where one part ends and the next begins counts."""
    state = xxhash.xxh3_128()
    for part in parts:
        data = memoryview(part.encode() if isinstance(part, str) else part)
        state.update(data.nbytes.to_bytes(8, "little"))
        state.update(data)
    return state.intdigest()


def merge(digests: Iterable[int]) -> int:
    """Return one digest of many; neither their order nor the way they are grouped matters."""
    return sum(digests) % (1 << BITS)


def show(value: int) -> str:
    """Return a digest as a person reads it: 32 hexadecimal digits."""
    return f"{value:032x}"
