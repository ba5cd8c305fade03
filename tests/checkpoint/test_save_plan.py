"""Who writes which bytes: nothing twice, nothing left out, and shared out evenly."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.arrays.base import DeclaredArray, RankSplit
from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.file_layout import LARGEST, chunk_ends, chunk_grain, plan_file_layout
from allranks.checkpoint.manifest import Shard
from allranks.checkpoint.save_plan import CheckpointLayout, FilePlan, plan_checkpoint_layout, plan_file, total_bytes
from allranks.extent import Extent
from allranks.storage.base import BLOCK


@st.composite
def splits(draw: st.DrawFn, size: int, dims: int) -> RankSplit:
    """Any grid of cells over some of ``size`` ranks: each of these holds one, or all hold the only one; some hold more
    than one, so that cells may have different numbers of holders."""
    ranks = draw(st.permutations(range(size)))[: draw(st.integers(1, size))]
    cuts = [1] * dims
    left = len(ranks)
    for dimension in draw(st.permutations(range(dims))):
        cut = draw(st.sampled_from([n for n in range(1, left + 1) if left % n == 0]))
        cuts[dimension], left = cut, left // cut
    cells = math.prod(cuts)
    more = draw(st.lists(st.sampled_from(ranks), min_size=cells, max_size=cells)) if draw(st.booleans()) else None
    holders = [{*ranks[cell::cells], *(more[cell : cell + 1] if more else ())} for cell in range(cells)]
    return RankSplit(tuple(cuts), tuple(tuple(sorted(held)) for held in holders))


# As the header of a file calls its own entry, and parts of other leaves.
ODD_NAMES = ["__metadata__", "__metadata__[]", "__metadata__[0:3]", "a", "a[0:1]", "a[0:2]", "a[0:1]~2", "", '"\\', "é"]


@st.composite
def states(draw: st.DrawFn) -> tuple[int, list[DeclaredArray]]:
    size = draw(st.integers(1, 6))
    declared = []
    names = draw(st.lists(st.sampled_from(ODD_NAMES), unique=True, max_size=8))
    for number in range(draw(st.integers(0, 8))):
        shape = tuple(draw(st.lists(st.integers(0, 9), max_size=3)))
        dtype = draw(st.sampled_from(["float32", "bfloat16", "uint8", "complex128"]))
        path = names[number] if number < len(names) else f"leaf/{number}"
        declared.append(DeclaredArray(path, shape, dtype, draw(splits(size, len(shape)))))
    return size, declared


def marked(size: int, declared: list[DeclaredArray]) -> list[np.ndarray]:
    """Count, for every element, how often some rank writes it."""
    counts = [np.zeros(one.shape, int) for one in declared]
    for rank in range(size):
        for part in plan_file(declared, rank=rank, size=size).parts:
            counts[part.leaf][part.extent.slices] += 1
    return counts


@given(states())
def test_every_element_is_written_once(state: tuple[int, list[DeclaredArray]]) -> None:
    """By exactly one rank, whatever the cut."""
    for count in marked(*state):
        assert (count == 1).all()


@given(states())
def test_a_rank_writes_only_what_it_holds(state: tuple[int, list[DeclaredArray]]) -> None:
    """And the bytes it takes out of its cell are those of the extent."""
    size, declared = state
    for rank in range(size):
        for part in plan_file(declared, rank=rank, size=size).parts:
            one = declared[part.leaf]
            assert rank in one.split.holders[part.cell]
            cell = cell_of(one, part.cell)
            numbers = np.arange(cell.size).reshape(cell.shape)[part.extent.within(cell).slices].reshape(-1)
            item = DTYPES[one.dtype].size
            assert part.start == numbers[0] * item
            assert part.nbytes == len(numbers) * item
            assert (np.diff(numbers) == 1).all()


def cell_of(one: DeclaredArray, cell: int) -> Extent:
    index = np.unravel_index(cell, one.split.cuts) if one.shape else ()
    chunk = [-(-n // cut) for n, cut in zip(one.shape, one.split.cuts, strict=True)]
    offset = [min(int(i) * c, n) for i, c, n in zip(index, chunk, one.shape, strict=True)]
    return Extent(tuple(offset), tuple(min(c, n - o) for c, n, o in zip(chunk, one.shape, offset, strict=True)))


@given(states())
def test_the_layout_says_what_the_files_are(state: tuple[int, list[DeclaredArray]]) -> None:
    """What rank 0 puts into the manifest is what every rank plans for itself."""
    size, declared = state
    files = [plan_file(declared, rank=rank, size=size) for rank in range(size)]
    whole = plan_checkpoint_layout(declared, size=size)
    assert whole.writers == tuple(rank for rank, file in enumerate(files) if file.bytes)
    assert whole.bytes == tuple(file.bytes for file in files if file.bytes)
    assert shards_of(whole, declared) == shards_in(files, whole, declared)


def shards_of(whole: CheckpointLayout, declared: list[DeclaredArray]) -> dict[str, set[Shard]]:
    return {one.path: set(whole.leaves[one.path].shards) for one in declared}


def shards_in(files: list[FilePlan], whole: CheckpointLayout, declared: list[DeclaredArray]) -> dict[str, set[Shard]]:
    found: dict[str, set[Shard]] = {one.path: set() for one in declared}
    for number, rank in enumerate(whole.writers):
        for part in files[rank].parts:
            found[declared[part.leaf].path].add(Shard(number, part.begin, part.extent))
    return found


@given(states())
def test_a_file_has_no_holes_and_is_aligned(state: tuple[int, list[DeclaredArray]]) -> None:
    size, declared = state
    for rank in range(size):
        file = plan_file(declared, rank=rank, size=size)
        at = file.data_begin
        assert at % 4096 == 0
        for part in file.parts:
            assert part.begin == at
            assert part.begin % min(DTYPES[declared[part.leaf].dtype].size, 8) == 0
            at += part.nbytes
        assert at == file.bytes


def test_replicas_are_shared_out_by_bytes() -> None:
    """Four ranks hold the same model, and each writes a quarter of it."""
    everybody = RankSplit((1, 1), ((0, 1, 2, 3),))
    declared = [DeclaredArray(f"{n}", (1000 + 37 * n, 900), "float32", everybody) for n in range(7)]
    sizes = [plan_file(declared, rank=rank, size=4).bytes for rank in range(4)]
    assert max(sizes) - min(sizes) < 0.01 * total_bytes(declared)


@given(st.integers(0, 3), st.lists(st.integers(1, 3 * LARGEST), max_size=20), st.integers(16, 23))
def test_chunks_cover_the_file_and_straddle_no_block(pages: int, shards: list[int], power: int) -> None:
    begin = pages * 4096
    ends = chunk_ends(begin, shards, grain_bytes=1 << power)
    assert [0, *ends][-1] == begin + sum(shards)
    for start, end in pairwise([0, *ends]):
        assert start < end
        assert start // BLOCK == (end - 1) // BLOCK


def test_what_three_ranks_need_of_four_files_is_hardly_more_than_their_share() -> None:
    """A shard is cut into some sixteen chunks, so that a part of it can be read and verified."""
    ends = chunk_ends(4096, [2 << 20] * 10, grain_bytes=chunk_grain(1_200_000_000))
    largest = max(end - start for start, end in pairwise([0, *ends]))
    assert largest <= (2 << 20) // 16


@pytest.mark.parametrize("total", [0, 1, 10**9, 10**12, 10**15])
def test_a_manifest_holds_some_hundred_thousand_digests_at_most(total: int) -> None:
    assert 1 << 16 <= chunk_grain(total) <= LARGEST
    assert chunk_grain(total) == LARGEST or total / chunk_grain(total) <= 1 << 17


@settings(max_examples=30)
@given(states())
def test_safetensors_opens_every_file(
    tmp_path_factory: pytest.TempPathFactory, state: tuple[int, list[DeclaredArray]]
) -> None:
    """The library itself, with our header, our names and our alignment."""
    safetensors = pytest.importorskip("safetensors", reason="safetensors is not installed")
    size, declared = state
    folder = tmp_path_factory.mktemp("files")
    for rank in range(size):
        file = plan_file(declared, rank=rank, size=size)
        if not file.bytes:
            continue
        about = {"allranks": json.dumps({"step": 10**9, "nonce": "f" * 32, "rank": 10**6})}
        header = plan_file_layout(declared, file, grain_bytes=1 << 16).make_header(about)
        assert len(header) == file.data_begin
        path = folder / f"{rank}.safetensors"
        path.write_bytes(header + bytes(file.bytes - file.data_begin))
        with safetensors.safe_open(path, "np") as opened:
            assert opened.metadata() == about
            assert len(list(opened.keys())) == len(file.parts)
