"""Files of tokens: what people have, damaged files, windows at random, and loaders on any number of ranks."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import megatron_index, token_file

from allranks import Dataset, SimulatedWorld
from allranks.data.sources.detect import open_source
from allranks.data.sources.file import ByteCounter, FileBytes, read_ranges
from allranks.data.sources.token_file import TokenLayout, find_tokens
from allranks.errors import DataChanged, DataError
from allranks.storage.memory import MemoryStorage

TOKENS = np.arange(5000) % 997 + 1
VALUES = TOKENS.astype("<u2")


def npy(array: Any) -> Callable[[Path], None]:
    return lambda path: np.save(path.with_suffix(".npy"), array)


def raw(data: bytes, **beside: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.with_suffix(".bin").write_bytes(data)
        for suffix, content in beside.items():
            path.with_suffix(f".{suffix}").write_bytes(content)

    return write


WRITTEN = {
    "nanoGPT": (raw(VALUES.tobytes()), {}),
    "uint32": (raw(TOKENS.astype("<u4").tobytes()), {"dtype": "uint32"}),
    "llm.c, GPT-2": (raw(token_file(VALUES, (20240520, 1))), {}),
    "llm.c, Llama 3": (raw(token_file(TOKENS.astype("<u4"), (20240801, 7))), {}),
    "npy": (npy(VALUES), {}),
    "npy, big-endian": (npy(TOKENS.astype(">i4")), {}),
    "Megatron": (raw(VALUES.tobytes(), idx=megatron_index([VALUES[:10], VALUES[10:]])), {}),
    "Megatron, int32": (raw(TOKENS.astype("<i4").tobytes(), idx=megatron_index([TOKENS.astype("<i4")], 4)), {}),
}


def windows(loader: Any, name: str = "tokens") -> np.ndarray:
    """All rows of an epoch, in the order of their ids."""
    batches = list(loader)
    ids, rows = np.concatenate([one.ids for one in batches]), np.concatenate([one[name] for one in batches])
    return rows[np.argsort(ids, kind="stable")][(ids < 0).sum() :]


@pytest.mark.parametrize("name", WRITTEN)
def test_files_that_people_have(name: str, tmp_path: Path) -> None:
    """Windows in the order of the file, and their targets, which are one token later."""
    write, options = WRITTEN[name]
    write(tmp_path / "a")
    folder = [path for path in tmp_path.iterdir() if path.suffix != ".idx"]
    data = Dataset.tokens(folder, length=32, targets=True, **options).batch(8)
    expected = np.stack([TOKENS[at : at + 33] for at in range(0, 5000 - 32, 32)])
    loader = data.loader(rank=0, size=1)
    assert np.array_equal(windows(loader), expected[:, :-1])
    assert np.array_equal(windows(loader, "targets"), expected[:, 1:])
    batch = next(iter(loader))
    assert batch["tokens"].dtype == batch["targets"].dtype == np.int64
    assert batch["targets"].flags.c_contiguous  # torch's view(-1) needs that


@pytest.mark.parametrize("as_dtype", ["int32", "uint16"])
def test_packed_documents_hold_every_token(tmp_path: Path, as_dtype: str) -> None:
    (tmp_path / "a.bin").write_bytes(VALUES.tobytes())
    data = Dataset.tokens(tmp_path / "a.bin", eos_id=997, as_dtype=as_dtype).pack(64).batch(4)
    rows = [batch["tokens"] for batch in data.loader(rank=0, size=1)]
    found = np.concatenate(rows).ravel()
    assert np.array_equal(np.sort(found[found > 0]), np.sort(TOKENS))


DAMAGED: dict[str, tuple[Callable[[Path], None], dict[str, Any], str]] = {
    "half a token": (raw(VALUES.tobytes()[:-1]), {}, r"at byte 9,999, the file ends in the middle of a token"),
    "llm.c, cut off": (raw(token_file(VALUES, (20240520, 1))[:-2]), {}, "the header counts 5,000 tokens, which need"),
    "llm.c, too long": (raw(token_file(VALUES, (20240520, 1)) + b"\0\0"), {}, "the header counts 5,000 tokens"),
    "llm.c, version": (raw(token_file(VALUES, (20240520, 9))), {}, "at byte 4, version 9"),
    "uint32": (raw(TOKENS.astype("<u4").tobytes()), {}, "its tokens may be uint32"),
    "a vocabulary above uint16": (raw(VALUES.tobytes()), {"vocab_size": 65537}, r'vocab_size=65,537.*dtype="uint32"'),
    "npy of floats": (npy(TOKENS * 1.0), {}, r"one dimension of integers\. Write one row of integers"),
    "npy of rows": (npy(TOKENS.reshape(50, 100)), {}, "one dimension of integers"),
    "a token too large": (raw(VALUES.tobytes()), {"vocab_size": 900}, r"the token 997 is in tokens 0 to"),
    "does not fit": (raw(VALUES.tobytes()), {"as_dtype": "uint8"}, r"expected 0 to 255"),
    "no idx": (raw(VALUES.tobytes(), idx=b"MMIDIDX"), {}, r"a\.idx .* does not begin as an \.idx"),
    "idx, cut off": (raw(VALUES.tobytes(), idx=megatron_index([VALUES])[:-1]), {}, r"a\.idx.*do not fit"),
    "idx, type": (raw(VALUES.tobytes(), idx=megatron_index([VALUES], 6)), {}, "version 1, type 6"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_named(name: str, tmp_path: Path) -> None:
    """With the place, and before it is read, or when the block is."""
    write, options, says = DAMAGED[name]
    write(tmp_path / "a")
    with pytest.raises(DataError, match=rf"a\.(bin|idx|npy).*{says}" if r"a\." not in says else says):
        list(Dataset.tokens(tmp_path, length=16, **options).batch(4).loader(rank=0, size=1))


@pytest.mark.parametrize("dtype", [np.uint32, np.dtype(np.uint32), "uint32"])
def test_a_type_may_be_a_name_or_of_numpy(dtype: Any, tmp_path: Path) -> None:
    """Also for a vocabulary that uint16 does not hold."""
    tokens = np.arange(1600) * 80
    tokens.astype("<u4").tofile(tmp_path / "a.bin")
    data = Dataset.tokens(tmp_path, length=16, dtype=dtype, as_dtype=dtype, vocab_size=128_256).batch(4)
    loader = data.loader(rank=0, size=1)
    assert np.array_equal(windows(loader).ravel(), tokens)
    assert next(iter(loader))["tokens"].dtype == np.uint32


def find_in_flat(tokens: np.ndarray) -> TokenLayout:
    storage, data = MemoryStorage(), tokens.tobytes()
    storage.put("a.bin", data)
    return find_tokens(FileBytes(storage, "a.bin", len(data), ByteCounter()), None, None)


def text_like(rng: np.random.Generator, vocab_size: int, count: int) -> np.ndarray:
    """Tokens with the frequencies of words in a text."""
    return np.minimum(rng.zipf(1.1, count) - 1, vocab_size - 1)


@pytest.mark.parametrize("vocab_size", [50_257, 65_537, 100_277, 128_256, 151_936, 262_144, 1 << 20])
def test_tokens_of_uint32_are_not_read_as_uint16(vocab_size: int) -> None:
    """Drawn evenly, or with the frequencies of a text."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        for tokens in (rng.integers(0, vocab_size, 2000), text_like(rng, vocab_size, 2000)):
            with pytest.raises(DataError, match=r"a\.bin.*its tokens may be uint32.*dtype=\"uint32\""):
                find_in_flat(tokens.astype("<u4"))


def test_tokens_of_uint16_raise_no_false_alarm() -> None:
    """Short and long texts, bytes of real texts, few characters, and a small token at every second place."""
    rng = np.random.default_rng(0)
    kinds = [text_like(rng, size, count) for size in (2, 4, 65, 300, 32_000, 50_257) for count in [36, 2048] * 20]
    kinds += [rng.integers(0, size, 36) for size in (2, 4, 65, 300, 50_257) for _ in range(40)]
    pages = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    kinds += [
        np.frombuffer(page, np.uint8)[at : at + 2048] for page in pages for at in (0, 1, 5000) if len(page) > 8000
    ]
    number_comma = np.stack([rng.integers(256, 50_257, 1024), np.full(1024, 11)], axis=1).ravel()
    letter_space = np.stack([rng.integers(0, 65, 1024), np.full(1024, 1)], axis=1).ravel()
    for tokens in [*kinds, number_comma, letter_space]:
        assert find_in_flat(tokens.astype("<u2")).count == len(tokens)


def test_a_npy_that_is_cut_off_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES)
    for data in ((tmp_path / "a.npy").read_bytes()[:-3], (tmp_path / "a.npy").read_bytes()[:40], b"", b"\x93NUMPY\\9"):
        (tmp_path / "a.npy").write_bytes(data)
        with pytest.raises(DataError, match=r"a\.npy|no sample"):
            Dataset.tokens(tmp_path / "a.npy", length=16).batch(4).loader(rank=0, size=1)


@pytest.mark.parametrize(
    ("at", "value", "says"),
    [
        (34, struct.pack("<i", 11), "sequence 0 is not where"),
        (34, struct.pack("<i", -1), "sequence 0 is not where"),
        (42, struct.pack("<q", 2), "sequence 0"),
        (50, struct.pack("<q", 21), "is not where"),
        (58, struct.pack("<q", 3), "its documents are of sequences 3 to 2"),
        (66, struct.pack("<q", 1 << 60), "do not ascend"),
        (74, struct.pack("<q", -5), "its documents are of sequences 0 to -5"),
    ],
)
def test_an_index_of_megatron_that_does_not_fit_is_named(at: int, value: bytes, says: str, tmp_path: Path) -> None:
    """Bytes 34: the sizes of two sequences; 42: their places; 58: the bounds of two documents."""
    good = bytearray(megatron_index([VALUES[:10], VALUES[10:]]))
    good[at : at + len(value)] = value
    raw(VALUES.tobytes(), idx=bytes(good))(tmp_path / "a")
    with pytest.raises(DataError, match=says):
        list(Dataset.tokens(tmp_path / "a.bin").batch(1).loader(rank=0, size=1))


@pytest.fixture
def chunks(tmp_path: Path) -> Path:
    """What litdata 0.2.76 wrote with TokensLoader: the numbers from 0 to 1,034 in three chunks of uint16."""
    return Path(shutil.copytree(Path(__file__).parent / "written" / "litdata_tokens", tmp_path / "chunks"))


def test_chunks_of_litdata_hold_tokens_behind_their_table(chunks: Path) -> None:
    rows = windows(Dataset.tokens(chunks, length=16).batch(8).loader(rank=0, size=1))
    begins = [first + 16 * row for first, many in ((0, 371), (371, 385), (756, 279)) for row in range(many // 16)]
    assert rows.tolist() == [list(range(at, at + 16)) for at in begins]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda index: index["config"].update(item_loader="PyTreeLoader"), "Read chunks of other samples with Dataset"),
        (lambda index: index["config"].update(compression="zstd"), "write tokens without compression"),
        (
            lambda index: index["config"].update(data_format=["no_header_numpy:9"]),
            "are float32.*Write the tokens as int",
        ),
        (lambda index: index["config"].update(data_format=["no_header_numpy:99"]), "does not describe tokens"),
        (lambda index: index["chunks"][0].update(chunk_size=3), "has 14 samples, and the index says 3"),
        (lambda index: index.pop("chunks"), "KeyError: 'chunks'"),
    ],
)
def test_an_index_of_litdata_that_does_not_fit_tokens_is_named(chunks: Path, change: Any, says: str) -> None:
    index = json.loads((chunks / "index.json").read_text())
    change(index)
    (chunks / "index.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match=rf"index\.json.*{says}"):
        Dataset.tokens(chunks, length=16).batch(8).loader(rank=0, size=1)


def test_chunks_of_litdata_are_not_taken_for_flat_files(chunks: Path) -> None:
    """Without their index, or cut off."""
    (chunks / "index.json").rename(chunks.parent / "index.json")
    with pytest.raises(DataError, match=r"chunk-0-0\.bin: expected an index\.json in its folder"):
        Dataset.tokens(chunks / "chunk-0-0.bin", length=16).batch(8).loader(rank=0, size=1)
    (chunks.parent / "index.json").rename(chunks / "index.json")
    path = chunks / "chunk-0-1.bin"
    good = path.read_bytes()
    for size in (3, 50, len(good) - 1, len(good) - 2):
        path.write_bytes(good[:size])
        with pytest.raises(DataError, match=r"chunk-0-1\.bin"):
            Dataset.tokens(path, length=16).batch(8).loader(rank=0, size=1)


def test_documents_need_to_be_known(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(VALUES.tobytes())
    with pytest.raises(DataError, match=r"no \.idx file of Megatron beside it"):
        Dataset.tokens(tmp_path).batch(1).loader(rank=0, size=1)
    (tmp_path / "b.idx").write_bytes(megatron_index([VALUES]))
    with pytest.raises(DataError, match=r"Give the \.bin file"):
        Dataset.tokens(tmp_path / "b.idx", length=4).batch(1).loader(rank=0, size=1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stride": 4}, "belong to windows"),
        ({"targets": True}, "belong to windows"),
        ({"length": 4, "eos_id": 1}, "expected one"),
        ({"length": 0}, "^length=0"),
        ({"length": 4, "stride": 0}, "^stride=0"),
        ({"eos_id": -1}, "^eos_id=-1"),
        ({"length": 4, "dtype": "float32"}, "^dtype='float32'"),
        ({"length": 4, "dtype": np.float32}, "^dtype=<class 'numpy.float32'>"),
        ({"length": 4, "dtype": np.integer}, "^dtype=<class 'numpy.integer'>"),
        ({"length": 4, "dtype": np.dtype(">u4")}, r"^dtype=dtype\('>u4'\): expected .*little-endian"),
        ({"length": 4, "as_dtype": None}, "^as_dtype=None"),
        ({"length": 4, "vocab_size": 1.5}, "^vocab_size=1.5"),
        ({"length": 4, "block_bytes": None}, "^block_bytes=None"),
    ],
)
def test_options_are_checked(options: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        open_source("tokens", "a.bin", **options)


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    """Its size, or its first bytes, between the index and the reading."""
    path = tmp_path / "a.bin"
    path.write_bytes(VALUES.tobytes())
    source = open_source("tokens", path, length=16)
    index = source.index()
    for data in (VALUES[:-16].tobytes(), VALUES[::-1].tobytes()):
        path.write_bytes(data)
        with pytest.raises(DataChanged, match=r"a\.bin has changed since it was indexed"):
            source.open(index).read(0)


def test_random_windows_of_a_file_that_is_cut_while_it_is_read(tmp_path: Path) -> None:
    """A map of the file would end the process."""
    path = tmp_path / "a.bin"
    path.write_bytes(np.tile(VALUES, 100).tobytes())
    loader = Dataset.tokens(path, length=16).random(0).batch(4).loader(rank=0, size=1, prefetch=1)
    batches = iter(loader)
    next(batches)
    path.write_bytes(VALUES[:20].tobytes())
    with pytest.raises(DataChanged, match=r"a\.bin has changed"):
        list(batches)


@pytest.fixture
def train(tmp_path: Path) -> Path:
    for name, found in {"a": VALUES, "b": VALUES[:10], "c": VALUES[::-1]}.items():
        (tmp_path / f"{name}.bin").write_bytes(found.tobytes())
    return tmp_path


def global_batches(data: Dataset, size: int, states: Sequence[Any] = (None,)) -> list[list[int]]:
    """The first token and the id of every row of all ranks, by step; the ledger is proved at the end."""

    def job(world: Any) -> tuple[list[Any], Any]:
        loader = data.loader(world, state=states[0])
        found = [(batch.ids.tolist(), batch["tokens"][:, 0].tolist()) for batch in loader]
        return found, loader.state().gathered()

    told = list(SimulatedWorld(size).run(job).values())
    return [
        [pair for rank in range(size) for pair in zip(*told[rank][0][step], strict=True)]
        for step in range(len(told[0][0]))
    ]


def test_random_windows_are_the_same_on_any_number_of_ranks(train: Path) -> None:
    """From any token of a file on, each inside of its file; no two rows of a batch have the same draw by rule."""
    data = Dataset.tokens(train, length=32, targets=True).random(3).batch(12)
    one = global_batches(data, 1)
    assert one == global_batches(data, 2) == global_batches(data, 3)
    assert len(one) == 2 * (5000 - 32) // 32 // 12
    starts = {row for step in one for row, _ in step}
    assert len(starts) > 0.9 * 12 * len(one)  # few are drawn twice
    assert len({row % 32 for row in starts}) == 32
    other = global_batches(Dataset.tokens(train, length=32, targets=True).random(4).batch(12), 1)
    assert len(starts & {row for step in other for row, _ in step}) < len(starts) / 5


def test_random_windows_hold_their_tokens(train: Path) -> None:
    loader = Dataset.tokens(train, length=32, targets=True).random(3).batch(12).loader(rank=1, size=2)
    places = {0: VALUES, 1: VALUES[::-1]}
    for batch in loader:
        for row, (start, token, target) in enumerate(
            zip(batch.ids.tolist(), batch["tokens"], batch["targets"], strict=True)
        ):
            found = places[start // (5000 - 32)][start % (5000 - 32) :][:33]
            assert np.array_equal(token, found[:-1]), row
            assert np.array_equal(target, found[1:])


def test_random_windows_go_on_at_a_state(train: Path) -> None:
    """On another number of ranks, in the next epoch too, whose draws are others."""
    data = Dataset.tokens(train, length=64).random(5, samples=120).batch(12)

    def begin(world: Any) -> Any:
        loader = data.loader(world)
        for step, _ in enumerate(loader):
            if step == 3:
                return loader.state().gathered()
        raise AssertionError

    whole = global_batches(data, 1)
    assert len(whole) == 10
    (state,) = SimulatedWorld(1).run(begin).values()
    assert global_batches(data, 3, [state]) == whole[4:]
    following = {**state, "epoch": 1, "depth": 0, "seen": [0, "0" * 16, 0]}
    first, second = (
        {row for step in epoch for row, _ in step} for epoch in (whole, global_batches(data, 2, [following]))
    )
    assert len(first & second) < 12
    with pytest.raises(DataError, match="seed: 5 in the state, 6 here"):
        Dataset.tokens(train, length=64).random(6, samples=120).batch(12).loader(rank=0, size=1, state=state)


GOLDEN = [3854, 216, 3704, 621]


def test_draws_are_those_of_the_first_release(train: Path) -> None:
    """Changed draws would change what every running job reads: these numbers must never change."""
    loader = Dataset.tokens(train / "a.bin", length=64).random(5).batch(4).loader(rank=0, size=1)
    assert next(iter(loader)).ids.tolist() == GOLDEN
    loader.close()


def test_random_is_refused_where_it_has_no_meaning(train: Path) -> None:
    windows = Dataset.tokens(train, length=64)
    for make in (
        lambda: Dataset.text(train).random(),
        lambda: Dataset.tokens(train, eos_id=1).random(),
        lambda: windows.take(5).random(),
        lambda: windows.map(str).random(),
        lambda: windows.random().take(5),
        lambda: windows.random().pack(5),
        lambda: Dataset.mix([(windows.random(), 1)]),
        lambda: windows.random().batch(4, streams=2).loader(rank=0, size=1),
        lambda: windows.random(samples=0),
        lambda: windows.random("a"),
    ):
        with pytest.raises(DataError):
            make()


def test_a_list_can_be_drawn_at_random() -> None:
    data = Dataset.sequence([f"text {row}" for row in range(50)], compare=False).random(1).batch(10)
    batches = list(data.loader(rank=0, size=1))
    assert len(batches) == 5
    assert all(text == f"text {row}" for batch in batches for row, text in zip(batch.ids, batch["value"], strict=True))


def test_ranges_of_a_remote_file_are_read_in_threads() -> None:
    storage = MemoryStorage()
    storage.put("a.bin", bytes(range(200)))
    rows = np.empty((50, 4), np.uint8)
    read_ranges(storage, "a.bin", list(range(50, 100)), rows)
    assert np.array_equal(rows, np.arange(50, 100)[:, None] + np.arange(4))
    assert FileBytes(storage, "a.bin", 200, None).beside("b.bin") is None  # type: ignore[arg-type]
