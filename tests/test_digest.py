"""Digests by name, of one buffer and of many, without copies."""

from __future__ import annotations

import numpy as np
import pytest

from allranks.digest import NAMES, hasher_by_name

# The published test vectors: XXH3-128 with seed 0, BLAKE3.
EMPTY = {
    "xxh3-128": "99aa06d3014798d86001c324468d497f",
    "blake3": "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
}


@pytest.mark.parametrize("name", NAMES)
def test_one_buffer_and_its_parts_have_one_digest(name: str) -> None:
    """Bytes, views of arrays, in one piece or streamed."""
    made = hasher_by_name(name)
    data = np.arange(100_000, dtype=np.uint8)
    stream = made.stream()
    for part in (data[:1], data[1:70_000], data[70_000:]):
        stream.update(memoryview(part))
    assert stream.hexdigest() == made(memoryview(data)) == made(data.tobytes())
    assert made(b"") == EMPTY[name]
    assert len(made(b"x")) == made.digits


def test_an_unknown_digest_is_refused() -> None:
    with pytest.raises(ValueError, match="no digest is called 'md5'; there are 'xxh3-128' and 'blake3'"):
        hasher_by_name("md5")
