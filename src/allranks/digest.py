"""Compute digests of bytes: XXH3-128, as fast as memory, against accidents and bugs; BLAKE3 also against attackers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import blake3
import xxhash

if TYPE_CHECKING:
    from typing_extensions import Buffer

BITS = 128


class Stream(Protocol):
    """A digest that is computed piece by piece; the result equals the digest of all pieces joined."""

    def update(self, data: Buffer, /) -> object: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Hasher:
    """A digest function for contiguous buffers, which are not copied.

    It returns ``digits`` lowercase hexadecimal digits.
    """

    name: str
    digits: int
    stream: Callable[[], Stream]
    _once: Callable[[Buffer], str]

    def __call__(self, data: Buffer) -> str:
        """Return the digest of a buffer as hexadecimal text."""
        return self._once(data)


def _blake3(data: Buffer) -> str:
    return blake3.blake3(data).hexdigest()


_HASHERS = {
    "xxh3-128": Hasher("xxh3-128", 32, xxhash.xxh3_128, xxhash.xxh3_128_hexdigest),
    "blake3": Hasher("blake3", 64, blake3.blake3, _blake3),
}
NAMES = tuple(_HASHERS)


def hasher_by_name(name: str) -> Hasher:
    """Return the hasher with this name. Raises ValueError, which lists the known names."""
    try:
        return _HASHERS[name]
    except KeyError:
        raise ValueError(f"no digest is called {name!r}; there are {' and '.join(map(repr, NAMES))}.") from None


def digest(*parts: bytes | memoryview | str) -> int:
    """Return a 128-bit digest of several parts. The boundaries between the parts change the digest."""
    state = xxhash.xxh3_128()
    for part in parts:
        data = memoryview(part.encode(errors="surrogatepass") if isinstance(part, str) else part)
        state.update(data.nbytes.to_bytes(8, "little"))
        state.update(data)
    return state.intdigest()


def merge_digests(digests: Iterable[int]) -> int:
    """Combine many digests into one. The result does not depend on their order or grouping."""
    return sum(digests) % (1 << BITS)


def show(value: int) -> str:
    """Format a digest for people, as 32 hexadecimal digits."""
    return f"{value:032x}"
