"""Where the digests of a file begin and end: arithmetic only.

A chunk is what must be read whole to be verified. So it is small beside the shard that it is a part of: whoever needs a
part of a shard (another world size) reads hardly more than that. It is not small beside all: a manifest holds some
100,000 digests at most. And none straddles two blocks, which different threads write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from allranks.storage.base import BLOCK, PAGE

LARGEST = BLOCK
_SMALLEST, _MOST = 1 << 16, 1 << 16
_OF_A_SHARD = 16


def grain(total_bytes: int) -> int:
    """Return the bytes up to which small shards share a chunk, for a checkpoint of ``total_bytes`` in all."""
    wanted = max(total_bytes // _MOST, 1)
    return min(max(1 << (wanted.bit_length() - 1), _SMALLEST), LARGEST)


def chunk_ends(data_begin: int, shards: Iterable[int], *, grain: int) -> tuple[int, ...]:
    """Return where each chunk of a file ends: a header up to ``data_begin``, then shards of these many bytes."""
    ends = list(_blocks(0, data_begin)) if data_begin else []
    at = start = data_begin
    for nbytes in shards:
        stop = at + nbytes
        if stop - start > grain and at > start:
            ends.extend(_blocks(start, at))
            start = at
        if nbytes > grain:
            step = min(max(-(-nbytes // (_OF_A_SHARD * PAGE)) * PAGE, grain), LARGEST)
            for begin in range(at, stop, step):
                ends.extend(_blocks(begin, min(begin + step, stop)))
            start = stop
        at = stop
    if at > start:
        ends.extend(_blocks(start, at))
    return tuple(ends)


def _blocks(begin: int, end: int) -> Iterator[int]:
    """Yield the borders of blocks between begin and end, and the end."""
    yield from range((begin // LARGEST + 1) * LARGEST, end, LARGEST)
    yield end
