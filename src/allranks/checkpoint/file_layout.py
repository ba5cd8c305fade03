"""Plan the content of one rank's file: which array bytes each block holds, and which bytes each digest covers.

A chunk is the unit of verification: it is read as a whole. Chunks are small compared with their shard, so another world
size reads hardly more than it needs. Chunks are not too small: a manifest holds some 100,000 digests at most. No chunk
crosses the border of two blocks, because different threads write them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import chain, count, pairwise
from typing import NamedTuple

from allranks.arrays.base import DeclaredArray
from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.save_plan import FilePlan
from allranks.extent import Extent
from allranks.storage.base import BLOCK, PAGE

_LENGTH = 8
_ABOUT = "__metadata__"
LARGEST = BLOCK
_SMALLEST, _MOST = 1 << 16, 1 << 16
_OF_A_SHARD = 16


class BlockCopy(NamedTuple):
    """An instruction to copy bytes: from source number ``source``, byte ``start`` on, to bytes ``begin`` to ``end`` of
    a block.
    """

    begin: int
    end: int
    source: int
    start: int


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """How one block of a file is filled and verified.

    ``copies``: the copies that fill it. ``chunks``: the byte ranges (begin, end) in it that have one digest each.
    """

    nbytes: int
    copies: tuple[BlockCopy, ...]
    chunks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The layout of a file. ``ends``: the positions at which its chunks end.

    In ``BlockCopy.source``, 0 is the header, and i + 1 is the i-th part of the plan.
    """

    plan: FilePlan
    blocks: tuple[BlockPlan, ...]
    ends: tuple[int, ...]
    _tensors: str

    def make_header(self, save_information: dict[str, str]) -> bytes:
        """Return the header, all bytes before the data.

        ``save_information``: entries to add to the safetensors metadata.
        """
        text = f'{{"{_ABOUT}":{json.dumps(save_information, separators=(",", ":"))}{self._tensors}}}'.encode()
        room = self.plan.data_begin - _LENGTH
        assert len(text) <= room, (len(text), room)
        return room.to_bytes(_LENGTH, "little") + text.ljust(room)


def plan_file_layout(declared_arrays: Sequence[DeclaredArray], plan: FilePlan, *, grain_bytes: int) -> FileLayout:
    """Return the layout of a rank's file, which must hold at least one byte. ``grain_bytes``: see ``chunk_grain``."""
    ends = chunk_ends(plan.data_begin, [part.nbytes for part in plan.parts], grain_bytes=grain_bytes)
    starts = [0, *(part.begin for part in plan.parts), plan.bytes]
    return FileLayout(plan, _plan_blocks(starts, ends), ends, _header_entries(declared_arrays, plan))


def _plan_blocks(starts: Sequence[int], ends: Sequence[int]) -> tuple[BlockPlan, ...]:
    """Return the plan of each block. A source extends from its start to the start of the next one."""
    copies: list[list[BlockCopy]] = [[] for _ in range(0, starts[-1], BLOCK)]
    chunks: list[list[tuple[int, int]]] = [[] for _ in copies]
    for source, (start, stop) in enumerate(pairwise(starts)):
        for block in range(start // BLOCK, -(-stop // BLOCK)):
            base = block * BLOCK
            begin, end = max(start, base), min(stop, base + BLOCK)
            copies[block].append(BlockCopy(begin - base, end - base, source, begin - start))
    begin = 0
    for end in ends:
        base = begin // BLOCK * BLOCK
        chunks[begin // BLOCK].append((begin - base, end - base))
        begin = end
    return tuple(
        BlockPlan(some[-1].end, tuple(some), tuple(digested)) for some, digested in zip(copies, chunks, strict=True)
    )


def _header_entries(declared: Sequence[DeclaredArray], plan: FilePlan) -> str:
    """Return the header's entries for the tensors as JSON text, each with a comma before it."""
    entries = []
    used = {_ABOUT}
    for part in plan.parts:
        one = declared[part.leaf]
        dtype = DTYPES[one.dtype]
        begin = part.begin - plan.data_begin
        name = _unique_name(one, part.extent, used)
        used.add(name)
        sizes = ",".join(map(str, part.extent.shape + dtype.tail))
        place = f"{begin},{begin + part.nbytes}"
        entries.append(
            f',{json.dumps(name)}:{{"dtype":"{dtype.stored_as}","shape":[{sizes}],"data_offsets":[{place}]}}'
        )
    return "".join(entries)


def _unique_name(one: DeclaredArray, extent: Extent, used: Set[str]) -> str:
    """Return a name for a part of a leaf that is unique in the file.

    The name is the leaf's path, followed by the extent if the part is not the complete leaf. Another leaf, or the
    header's own entry, may already have that name; then a number is appended.
    """
    if extent.shape == one.shape and one.path not in used:
        return one.path
    place = one.path + _extent_text(extent)
    return next(name for name in chain([place], (f"{place}~{number}" for number in count(2))) if name not in used)


def _extent_text(extent: Extent) -> str:
    """Return the extent as text: ``[0:8,4:8]``."""
    return f"[{','.join(f'{start}:{stop}' for start, stop in zip(extent.offset, extent.end, strict=True))}]"


def chunk_grain(total_bytes: int) -> int:
    """Return the chunk size in bytes, for a checkpoint of ``total_bytes``. Shards that are smaller share a chunk."""
    wanted = max(total_bytes // _MOST, 1)
    return min(max(1 << (wanted.bit_length() - 1), _SMALLEST), LARGEST)


def chunk_ends(data_begin: int, shard_sizes: Iterable[int], *, grain_bytes: int) -> tuple[int, ...]:
    """Return the position at which each chunk of a file ends.

    The file has ``data_begin`` bytes of header, then shards of these sizes in bytes. ``grain_bytes``: see
    ``chunk_grain``.
    """
    ends = list(_block_borders(0, data_begin)) if data_begin else []
    at = start = data_begin
    for nbytes in shard_sizes:
        stop = at + nbytes
        if stop - start > grain_bytes and at > start:
            ends.extend(_block_borders(start, at))
            start = at
        if nbytes > grain_bytes:
            step = min(max(-(-nbytes // (_OF_A_SHARD * PAGE)) * PAGE, grain_bytes), LARGEST)
            for begin in range(at, stop, step):
                ends.extend(_block_borders(begin, min(begin + step, stop)))
            start = stop
        at = stop
    if at > start:
        ends.extend(_block_borders(start, at))
    return tuple(ends)


def _block_borders(begin: int, end: int) -> Iterator[int]:
    """Yield the positions of block borders between ``begin`` and ``end``, and then ``end``."""
    yield from range((begin // LARGEST + 1) * LARGEST, end, LARGEST)
    yield end
