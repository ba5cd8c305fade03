"""Index the files on rank 0, and give all ranks the same index."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from allranks.data.base import Progress, Source, silent
from allranks.data.index import Index
from allranks.world.base import World

_PART = 1 << 20  # bytes that a coordinator takes in one piece


def sample_facts(sources: Iterable[Source], world: World) -> dict[str, str]:
    """Return, as a fact that ranks compare, a digest of a few samples of the sources that are objects in memory."""
    compared = [source.sample_digest() for source in sources if world.size > 1 and hasattr(source, "sample_digest")]
    return {"some samples": "/".join(compared)} if any(compared) else {}


def shared_index(source: Source, world: World, *, progress: Progress = silent) -> Index:
    """Return a source's index, which rank 0 builds or loads from its cache. **Every rank must call.**

    An error of rank 0 with the files is raised by every rank.
    """
    if world.size == 1:
        return source.index(progress=progress)
    packed = b""

    def build() -> int:
        nonlocal packed
        packed = zlib.compress(source.index(progress=progress).encode(), 1)
        return len(packed)

    size = world.on_main(build)
    parts = [world.broadcast(packed[at : at + _PART], name=f"index at {at}") for at in range(0, size, _PART)]
    return Index.decode(zlib.decompress(b"".join(parts)))
