"""What a rank reads: every wanted byte arrives, in its place, from as few chunks as hold it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.checkpoint.manifest import Manifest, Shard, ShardRun, StoredFile, StoredLeaf
from allranks.checkpoint.restore_plan import ChunkRead, boxes_of_range, group_reads, plan_cost, plan_reads
from allranks.errors import Damaged
from allranks.extent import Extent
from allranks.storage.base import PAGE

HEADER = 64


def manifest_of(leaves: dict[str, StoredLeaf], sizes: list[int], chunks: list[list[int]]) -> Manifest:
    """A manifest of files whose chunks end where ``chunks`` says."""
    files = tuple(
        StoredFile(f"f{i}", size, tuple(ends), ("0" * 32,) * len(ends))
        for i, (size, ends) in enumerate(zip(sizes, chunks, strict=True))
    )
    return Manifest(1, "0" * 32, "2025-01-01T00:00:00Z", 1, "xxh3-128", files, leaves, {}, None, {}, {})


def cells_of(shape: tuple[int, ...], cuts: tuple[int, ...]) -> list[Extent]:
    """The cells of a grid, in row-major order, as ``arrays.Split`` cuts it."""
    steps = [-(-n // c) for n, c in zip(shape, cuts, strict=True)]
    found = []
    for index in np.ndindex(*cuts):
        offset = tuple(min(i * s, n) for i, s, n in zip(index, steps, shape, strict=True))
        many = tuple(min(s, n - o) for s, n, o in zip(steps, shape, offset, strict=True))
        found.append(Extent(offset, many))
    return [cell for cell in found if cell.size]


@st.composite
def stored(draw: st.DrawFn) -> tuple[Manifest, dict[str, np.ndarray], list[bytes]]:
    """Leaves cut in grids, spread over files, in chunks that end anywhere between elements."""
    files = draw(st.integers(1, 3))
    content = [bytearray(b"h" * HEADER) for _ in range(files)]
    ends: list[set[int]] = [set() for _ in range(files)]
    leaves, arrays = {}, {}
    for i in range(draw(st.integers(1, 4))):
        shape = tuple(draw(st.lists(st.integers(1, 6), max_size=4)))
        cuts = tuple(draw(st.integers(1, n)) for n in shape)
        dtype = draw(st.sampled_from(["float32", "uint8", "complex128"]))
        array = np.random.default_rng(i).integers(0, 255, shape).astype(dtype)
        runs = []
        for cell in cells_of(shape, cuts):
            file = draw(st.integers(0, files - 1))
            begin = len(content[file])
            content[file] += array[cell.slices].tobytes()
            inside = draw(st.sets(st.integers(0, cell.size), max_size=4))
            ends[file] |= {begin + at * array.itemsize for at in inside}
            runs.append(ShardRun(Shard(file, begin, cell)))
        leaves[f"leaf{i}"], arrays[f"leaf{i}"] = StoredLeaf(shape, dtype, "", tuple(runs)), array
    sizes = [len(one) for one in content]
    chunks = [sorted(these | {size}) for these, size in zip(ends, sizes, strict=True)]
    return manifest_of(leaves, sizes, chunks), arrays, [bytes(one) for one in content]


@st.composite
def extents(draw: st.DrawFn, shape: tuple[int, ...]) -> Extent:
    """Any box inside a shape, empty ones too."""
    bounds = [sorted((draw(st.integers(0, n)), draw(st.integers(0, n)))) for n in shape]
    return Extent(tuple(a for a, _ in bounds), tuple(b - a for a, b in bounds))


def directly(read: ChunkRead, data: bytes, buffer: np.ndarray) -> None:
    """Read a chunk straight into the buffer, as bytes."""
    assert read.direct is not None
    flat = buffer.reshape(-1).view(np.uint8)
    flat[read.direct : read.direct + read.end - read.begin] = np.frombuffer(data[read.begin : read.end], np.uint8)


@settings(deadline=None)
@given(st.data())
def test_every_wanted_element_arrives(data: st.DataObject) -> None:
    """Read as the plan says, by copies or directly, each wanted extent is what it was in the array."""
    manifest, arrays, content = data.draw(stored())
    wanted = []
    for path, array in arrays.items():
        wanted += [(path, data.draw(extents(array.shape))) for _ in range(data.draw(st.integers(0, 3)))]
    files = plan_reads(manifest, wanted)
    assert [one.file for one in files] == sorted({one.file for one in files})
    for by_copy in (True, False):
        buffers = [np.full(extent.shape, 99, arrays[path].dtype) for path, extent in wanted]
        for file in files:
            assert [read.chunk for read in file.reads] == sorted({read.chunk for read in file.reads})
            for read in file.reads:
                copies = list(read.plan_copies)
                assert copies, "a chunk that nobody needs"
                if read.direct is not None and not by_copy:
                    directly(read, content[file.file], buffers[copies[0].wanted])
                    continue
                chunk = content[file.file][read.begin : read.end]
                for copy in copies:
                    dtype = buffers[copy.wanted].dtype
                    box = np.frombuffer(chunk, dtype, math.prod(copy.shape), copy.source).reshape(copy.shape)
                    buffers[copy.wanted][copy.into] = box[copy.take]
        for (path, extent), buffer in zip(wanted, buffers, strict=True):
            np.testing.assert_array_equal(buffer, arrays[path][extent.slices])


@settings(deadline=None)
@given(st.lists(st.integers(1, 5), max_size=4).map(tuple), st.data())
def test_a_linear_range_is_a_few_boxes(shape: tuple[int, ...], data: st.DataObject) -> None:
    """In order, they hold exactly the elements of the range, in at most 2n - 1 boxes."""
    size = math.prod(shape)
    begin, end = sorted((data.draw(st.integers(0, size)), data.draw(st.integers(0, size))))
    found = boxes_of_range(shape, begin, end)
    numbers = np.arange(size).reshape(shape)
    assert [n for box in found for n in numbers[box.slices].reshape(-1)] == list(range(begin, end))
    assert len(found) <= max(2 * len(shape) - 1, 1)


def test_a_row_of_shards_is_read_as_its_shards_one_by_one() -> None:
    """In a run only the shards that reach the extent are made: the plan is that of all of them, in both directions."""
    for step, begin in ((2, 0), (-2, 18)):
        row = ShardRun(Shard(0, HEADER, Extent((begin, 0), (2, 4))), 10, 0, 32, (step, 0))
        ends = list(range(HEADER, HEADER + 320 + 1, 16))
        short = manifest_of({"x": StoredLeaf((20, 4), "float32", "", (row,))}, [ends[-1]], [ends])
        long = StoredLeaf((20, 4), "float32", "", tuple(map(ShardRun, row)))
        whole = manifest_of({"x": long}, [ends[-1]], [ends])
        for extent in (
            Extent((3, 1), (6, 2)),
            Extent((0, 0), (20, 4)),
            Extent((19, 3), (1, 1)),
            Extent((4, 0), (0, 4)),
        ):
            assert plan_reads(short, [("x", extent)]) == plan_reads(whole, [("x", extent)])


def test_ten_thousand_shards_of_one_leaf_are_not_all_made() -> None:
    """One rank of 10,000 wants its own rows: one read, from one file."""
    row = ShardRun(Shard(0, HEADER, Extent((0,), (8,))), 10_000, 1, 0, (8,))
    leaf = StoredLeaf((80_000,), "float32", "", (row,))
    manifest = manifest_of({"x": leaf}, [HEADER + 32] * 10_000, [[HEADER, HEADER + 32]] * 10_000)
    [file] = plan_reads(manifest, [("x", Extent((8 * 7_000,), (8,)))])
    assert (file.file, [(read.chunk, read.direct) for read in file.reads]) == (7_000, [(1, 0)])


def test_a_chunk_that_lands_in_one_piece_is_direct() -> None:
    """Rows into rows are; columns into rows only where a chunk is in one row; a chunk with others' bytes is not."""
    rows = [ShardRun(Shard(0, HEADER + 64 * i, Extent((4 * i, 0), (4, 4)))) for i in range(2)]
    ends = [HEADER, HEADER + 40, HEADER + 64, HEADER + 128]
    manifest = manifest_of({"x": StoredLeaf((8, 4), "float32", "", tuple(rows))}, [ends[-1]], [ends])

    def direct(extent: Extent) -> list[int | None]:
        return [read.direct for file in plan_reads(manifest, [("x", extent)]) for read in file.reads]

    assert direct(Extent((0, 0), (8, 4))) == [0, 40, 64]
    assert direct(Extent((4, 0), (4, 4))) == [0]
    assert direct(Extent((2, 0), (6, 4))) == [None, 8, 32]
    assert direct(Extent((0, 0), (8, 3))) == [None, None, None]
    columns = [ShardRun(Shard(0, HEADER + 64 * i, Extent((0, 4 * i), (4, 4)))) for i in range(2)]
    ends = [HEADER, HEADER + 16, HEADER + 56, HEADER + 64, HEADER + 128]
    manifest = manifest_of({"x": StoredLeaf((4, 8), "float32", "", tuple(columns))}, [ends[-1]], [ends])
    assert direct(Extent((0, 0), (4, 8))) == [0, None, 96 + 8, None]


def test_experts_cut_along_their_rows_are_read_directly() -> None:
    """A chunk inside one expert's block of a 3-D leaf lands in one piece, though the shard as a whole does not."""
    halves = [ShardRun(Shard(0, 96 * i, Extent((0, 2 * i, 0), (2, 2, 6)))) for i in range(2)]
    ends = [20, 48, 76, 96, 192]
    manifest = manifest_of({"x": StoredLeaf((2, 4, 6), "float32", "", tuple(halves))}, [192], [ends])
    [file] = plan_reads(manifest, [("x", Extent((0, 0, 0), (2, 4, 6)))])
    assert [read.direct for read in file.reads] == [0, 20, 96, 96 + 28, None]


def test_neighbours_are_read_in_one_call() -> None:
    """Chunks that adjoin, or nearly so, go together up to the limit; direct ones and others apart."""
    leaf = StoredLeaf((40,), "uint8", "", (ShardRun(Shard(0, 0, Extent((0,), (40,)))),))
    manifest = manifest_of({"x": leaf}, [40], [list(range(5, 41, 5))])

    def groups(*wanted: Extent, limit: int = 100) -> list[list[int]]:
        [file] = plan_reads(manifest, [("x", extent) for extent in wanted])
        return [[read.chunk for read in group] for group in group_reads(file.reads, max_bytes=limit)]

    assert groups(Extent((0,), (40,))) == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert groups(Extent((0,), (40,)), limit=15) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert groups(Extent((0,), (40,)), limit=1) == [[i] for i in range(8)]
    assert groups(Extent((0,), (10,)), Extent((30,), (10,))) == [[0, 1, 6, 7]]
    assert groups(Extent((0,), (10,)), Extent((30,), (10,)), limit=35) == [[0, 1, 6], [7]]
    assert groups(Extent((0,), (20,)), Extent((20,), (20,))) == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert groups(Extent((2,), (30,))) == [[0], [1, 2, 3, 4, 5], [6]]

    rare = StoredLeaf((3 * PAGE,), "uint8", "", (ShardRun(Shard(0, 0, Extent((0,), (3 * PAGE,)))),))
    manifest = manifest_of({"x": rare}, [3 * PAGE], [[PAGE - 1, 2 * PAGE, 3 * PAGE]])
    assert groups(Extent((0,), (9,)), Extent((2 * PAGE,), (9,)), limit=9 * PAGE) == [[0], [2]]


def test_a_chunk_that_ends_within_an_element_is_refused() -> None:
    """The format does not allow it, and the leaf is named."""
    leaf = StoredLeaf((4,), "float32", "", (ShardRun(Shard(0, 0, Extent((0,), (4,)))),))
    with pytest.raises(Damaged, match="within an element of leaf 'x'") as caught:
        plan_reads(manifest_of({"x": leaf}, [16], [[6, 16]]), [("x", Extent((0,), (4,)))])
    assert (caught.value.leaf, caught.value.path) == ("x", "f0")


def gpt2() -> dict[str, tuple[int, ...]]:
    """The 148 leaves of GPT-2 small."""
    layer = {"ln_1": (768,), "ln_1_b": (768,), "qkv": (768, 2304), "qkv_b": (2304,), "out": (768, 768), "out_b": (768,)}
    layer |= {
        "ln_2": (768,),
        "ln_2_b": (768,),
        "up": (768, 3072),
        "up_b": (3072,),
        "down": (3072, 768),
        "down_b": (768,),
    }
    leaves = {f"{i}.{name}": shape for i in range(12) for name, shape in layer.items()}
    return {"wte": (50257, 768), "wpe": (1024, 768), **leaves, "ln_f": (768,), "ln_f_b": (768,)}


def saved_by_rows(ranks: int) -> Manifest:
    """GPT-2 cut along the first dimension; chunks of 1/16 of the shard, 64 KiB to 8 MiB; small shards share one."""
    leaves: dict[str, list[ShardRun]] = {path: [] for path in gpt2()}
    sizes, chunks = [], []
    for rank in range(ranks):
        at, ends = 4096, [4096]
        for path, shape in gpt2().items():
            cell = cells_of(shape, (ranks, *(1,) * (len(shape) - 1)))[rank]
            leaves[path].append(ShardRun(Shard(rank, at, cell)))
            size = cell.size * 4
            grain = min(max(size // 16 // 4096 * 4096, 64 << 10), 8 << 20)
            if size > grain and ends[-1] != at:
                ends.append(at)
            while at + size - ends[-1] >= grain:
                ends.append(ends[-1] + grain)
            at += size
            if size > grain and ends[-1] != at:
                ends.append(at)
        sizes.append(at)
        chunks.append(sorted({*ends, at}))
    stored = {path: StoredLeaf(gpt2()[path], "float32", "", tuple(runs)) for path, runs in leaves.items()}
    return manifest_of(stored, sizes, chunks)


def test_four_ranks_to_three_reads_hardly_more_than_is_needed() -> None:
    """At most 5 % more, on every rank: a chunk is small beside its shard."""
    manifest = saved_by_rows(4)
    for rank in range(3):
        wanted = [(path, cells_of(shape, (3, *(1,) * (len(shape) - 1)))[rank]) for path, shape in gpt2().items()]
        spent = plan_cost(manifest, wanted, plan_reads(manifest, wanted))
        assert spent.needed <= spent.read <= 1.05 * spent.needed
