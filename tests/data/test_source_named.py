"""Data sets of Hugging Face by name: the samples that their library streams, with the plan's guarantees; or refused."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import allranks
from allranks import SimulatedWorld, World
from allranks.data.index import DatasetIndex
from allranks.errors import DataChanged, DataError

for needed in ("datasets", "pyarrow", "orjson"):
    pytest.importorskip(needed)

import datasets  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from named_files import (  # noqa: E402
    SIZES,
    WRITE,
    plain,
    samples,
    streamed,
    table,
    write_json,
    write_json_gz,
    write_parquet,
)

from allranks.data.sources.named import named  # noqa: E402
from allranks.data.sources.types import ColumnTypes, type_word  # noqa: E402


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test uses what another has left in a cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


@pytest.mark.parametrize(("form", "write"), [*WRITE.items(), pytest.param("json", write_json_gz, id="json.gz")])
def test_samples_are_those_of_their_library_in_its_order(tmp_path: Path, form: str, write: Any) -> None:
    """By a list of files in an order of its own, and by a pattern; columns, types and nulls too."""
    files = [str(write(tmp_path, name, many)) for name, many in SIZES.items()]
    for data_files in (files, f"{tmp_path}/*{files[0].partition('.')[2]}"):
        how = {"data_files": {"train": files[1:], "test": files[:1]} if data_files is files else data_files}
        how["cache_dir"] = str(tmp_path / "cache")
        expected = streamed(form, **how)
        assert len(expected) > 90
        assert [plain(one) for one in samples(form, split="train", block_bytes=500, **how)] == expected


def test_a_folder_stands_for_its_files_and_columns_are_chosen(tmp_path: Path) -> None:
    """Without a split where there is one only; of files that differ in a column that nobody wants, too."""
    for name, many in SIZES.items():
        write_parquet(tmp_path, name, many)
    expected = streamed(str(tmp_path), columns=["text", "x"])
    assert samples(str(tmp_path), columns=["text", "x"]) == expected
    pq.write_table(table("d", 5).drop_columns("more"), tmp_path / "d.parquet")
    assert len(samples(str(tmp_path), columns=["x"])) == len(expected) + 5


def test_images_are_as_they_are_stored_and_rectangles_are_lists(tmp_path: Path) -> None:
    """A rank that has not imported their library reads the same types."""
    rectangle = [[1, 2], [3, 4]]
    features = {"image": datasets.Image(), "rectangle": datasets.Array2D((2, 2), "int32")}
    rows = [{"image": {"bytes": b"png", "path": "a.png"}, "rectangle": rectangle}]
    datasets.Dataset.from_list(rows, features=datasets.Features(features)).to_parquet(tmp_path / "a.parquet")
    (one,) = samples("parquet", data_files=f"{tmp_path}/*.parquet")
    assert one == rows[0]


def run(size: int, program: Callable[[World], Any]) -> Any:
    outcome = SimulatedWorld(size).run(program)
    assert not outcome.errors, outcome.errors
    return [outcome.results[rank] for rank in range(size)]


@pytest.mark.parametrize("form", WRITE)
def test_every_sample_is_read_once_and_goes_on_with_other_ranks(tmp_path: Path, form: str) -> None:
    """1, 2 and 3 ranks make the same batches in equal steps; a stop after 7 steps of 3 goes on with 2, exactly."""
    files = [str(WRITE[form](tmp_path, name, many)) for name, many in SIZES.items()]

    def batches(world: World, steps: int | None, state: Any) -> Any:
        data = allranks.Dataset.huggingface(form, streaming=True, split="train", data_files=files, block_bytes=300)
        loader = data.map(lambda one: {"said": repr(plain(one))}).batch(12).loader(world, state=state)
        taken = [list(itertools.compress(batch["said"], batch.mask)) for batch in itertools.islice(loader, steps)]
        return taken, loader.step if steps is None else loader.state().gathered()

    def together(ranks: Any) -> list[list[Any]]:
        return [list(itertools.chain(*step)) for step in zip(*(taken for taken, _ in ranks), strict=True)]

    whole = {size: together(run(size, lambda world: batches(world, None, None))) for size in (1, 2, 3)}
    expected = sorted(map(repr, streamed(form, data_files=files)))
    assert sorted(itertools.chain(*whole[1])) == expected
    assert len(whole[1]) == -(-len(expected) // 12)
    assert whole[1] == whole[2] == whole[3]

    begun = run(3, lambda world: batches(world, 7, None))
    rest = run(2, lambda world: batches(world, None, begun[0][1]))
    assert together(begun) + together(rest) == whole[1]


def test_take_is_that_of_their_library(tmp_path: Path) -> None:
    files = [str(write_json(tmp_path, name, many)) for name, many in SIZES.items()]
    data = allranks.Dataset.huggingface("json", streaming=True, data_files=files, shuffle=False)
    (batch,) = data.skip(38).take(6).batch(6, streams=1).loader(rank=0, size=1)
    theirs = datasets.load_dataset("json", data_files=files, split="train", streaming=True).skip(38).take(6)
    assert list(zip(batch["name"], batch["x"].tolist(), strict=True)) == [(one["name"], one["x"]) for one in theirs]


def text_of(folder: Path, data: bytes, name: str = "z.txt") -> dict[str, Any]:
    (folder / name).write_bytes(data)
    return {"path": "text", "data_files": str(folder / name)}


def json_of(folder: Path, data: str, name: str = "z.jsonl") -> dict[str, Any]:
    (folder / name).write_text(data)
    return {"path": "json", "data_files": str(folder / name)}


def another_schema(folder: Path) -> dict[str, Any]:
    write_parquet(folder, "a", 5)
    pq.write_table(pa.table({**dict(zip(("x",), [pa.array([1], pa.int32())], strict=True))}), folder / "b.parquet")
    return {"path": "parquet", "data_files": f"{folder}/*.parquet"}


def with_features(folder: Path) -> dict[str, Any]:
    path = folder / "z.parquet"
    pq.write_table(pa.table({"x": [1, 2]}), path)
    return {"path": "parquet", "data_files": str(path), "features": datasets.Features({"x": datasets.Value("string")})}


def with_json(folder: Path) -> dict[str, Any]:
    path = folder / "z.parquet"
    rows = pa.table({"nested": pa.array([{"x": '{"a": 1}'}])})
    pq.write_table(rows.cast(pa.schema({"nested": pa.struct({"x": pa.json_()})})), path)
    return {"path": "parquet", "data_files": str(path)}


def csv_of(folder: Path) -> dict[str, Any]:
    (folder / "z.csv").write_text("a,b\n1,2\n")
    return {"path": "csv", "data_files": str(folder / "z.csv")}


REFUSED: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "another format": (csv_of, "it is of 'csv', of which the plan knows no files"),
    "another schema": (
        another_schema,
        "b.parquet: the columns differ.*numbers: .int32. by its features, no column.*x: int64 by its .*, int32 in the",
    ),
    "features": (with_features, "x: string by its features, int64 in the file"),
    "features that are decoded": (with_json, "its features hold what is made of the values"),
    "an option": (lambda to: json_of(to, '{"x": 1}') | {"encoding": "latin-1"}, "encoding='latin-1', which the plan"),
    "filters": (lambda to: {**another_schema(to), "filters": [("x", "==", 1)]}, r"filters=\[\('x', '==', 1\)\]"),
    "an expression": (lambda to: {**another_schema(to), "filters": pc.field("x") > 1}, "filters=<pyarrow"),
    "an option of theirs that there is not": (
        lambda to: json_of(to, '{"x": 1}') | {"nope": 1},
        "datasets does not know",
    ),
    "credentials": (lambda to: json_of(to, '{"x": 1}') | {"token": "secret"}, "token cannot be used"),
    "no file": (lambda to: {"path": "json", "data_files": f"{to}/nope*.jsonl"}, "no file matches its data_files"),
    "a split": (lambda to: json_of(to, '{"x": 1}') | {"split": "test"}, "there is no split 'test'; there are 'train'"),
    "a part of a split": (
        lambda to: json_of(to, '{"x": 1}') | {"split": "train[:10%]"},
        "there is no split 'train.:10%",
    ),
    "twice": (
        lambda to: {"path": "json", "data_files": [json_of(to, '{"x": 1}')["data_files"]] * 2},
        "is in the list twice",
    ),
    "a list in JSON": (
        lambda to: json_of(to, '[{"x": 1}]', "z.json"),
        "it has no features: its files are no JSON lines",
    ),
    "JSON over lines": (
        lambda to: json_of(to, '{\n "x": 1\n}\n', "z.json"),
        "line 1 of the block at byte 0 does not fit",
    ),
    "mixed types": (lambda to: json_of(to, '{"x": 1}\n{"x": "a"}\n'), "its features hold what is made of the values"),
    "a mark of order": (lambda to: text_of(to, b"\xef\xbb\xbfa\n"), "begins with a byte-order mark"),
    "other line ends": (lambda to: text_of(to, b"a\rb\r\nc"), "has a carriage return alone"),
    "a packed file": (
        lambda to: text_of(to, gzip.compress(b"a\nb\n"), "noname"),
        "is compressed, but its name ends in",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_plan_cannot_give_is_refused(tmp_path: Path, what: str) -> None:
    """With the reason, and with another way; nothing is read in some other way in silence."""
    make, said = REFUSED[what]
    with pytest.raises(DataError, match=said):
        samples(**make(tmp_path))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"x": 2', "Missing a comma"),
        ('{"x": 2, "y": 1}', "unexpected field"),
        ('{"x": 2.5}', "couldn't parse:2.5"),
        ('{"x": 2}{"x": 3}', "its objects are not one in each line"),
        ("7", "changed from object to number"),
    ],
)
def test_a_line_that_does_not_fit_is_named(tmp_path: Path, line: str, why: str) -> None:
    """Of a file behind the first one, which says what the features are."""
    first = json_of(tmp_path, '{"x": 1}\n')["data_files"]
    (tmp_path / "more.jsonl").write_text(f'{{"x": 1}}\n\n{line}\n{{"x": 1}}\n')
    with pytest.raises(DataError, match=rf"more.jsonl: line 2 of the block at byte 0 does not fit .*{why}"):
        samples("json", data_files=[first, str(tmp_path / "more.jsonl")])


def test_an_object_says_to_give_the_name(tmp_path: Path) -> None:
    """A stream may have been mapped, filtered or shuffled: its files never take its place."""
    path = write_parquet(tmp_path, "a", 20)
    stream = datasets.load_dataset("parquet", data_files=str(path), split="train", streaming=True)
    for one in (stream, stream.filter(lambda sample: sample["x"] % 2)):
        with pytest.raises(DataError, match=r"can only be iterated.*Dataset.huggingface what load_dataset was given"):
            allranks.Dataset.huggingface(one)
    with pytest.raises(DataError, match=r"the name 'parquet'. Set streaming=True"):
        allranks.Dataset.huggingface("parquet", data_files=str(path))
    with pytest.raises(DataError, match="split, streaming go with the name of a data set, not with a Dataset"):
        allranks.Dataset.huggingface(datasets.Dataset.from_dict({"x": [1]}), split="train", streaming=True)


def test_a_rank_that_asks_for_something_else_is_told(tmp_path: Path) -> None:
    path = str(write_parquet(tmp_path, "a", 20))
    index = named("parquet", data_files={"train": path, "test": [path]}, split="train").index()
    with pytest.raises(DataChanged, match=r"this rank reads parquet, split='test'.*expected .*split='train'"):
        named("parquet", data_files={"train": path, "test": [path]}, split="test").open(index)


def test_a_note_is_no_part_of_the_digest(tmp_path: Path) -> None:
    """The same files in another folder are the same data; other types are other data."""
    digests = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        index = named("json", data_files=str(write_json(folder, "a", 9))).index()
        assert str(folder) in index.note
        assert (index.slice(2, 5).note, DatasetIndex.decode(index.encode()).note) == (index.note, index.note)
        digests.append(index.digest)
    assert digests[0] == digests[1]
    features = datasets.load_dataset(
        "json", data_files=f"{tmp_path}/two/*.jsonl", split="train", streaming=True
    ).features
    features = datasets.Features(features | {"when": datasets.Value("string")})
    other = named("json", data_files=f"{tmp_path}/two/*.jsonl", features=features)
    assert other.index().digest != digests[0]


def test_an_index_that_was_kept_is_of_the_same_features(tmp_path: Path) -> None:
    """Files that were looked at for one schema are looked at again for another."""
    write_parquet(tmp_path, "a", 9)
    assert samples("parquet", data_files=f"{tmp_path}/*.parquet")
    features = datasets.Features({"x": datasets.Value("int32")})
    with pytest.raises(DataError, match="x: int32 by its features, int64 in the file"):
        samples("parquet", data_files=f"{tmp_path}/*.parquet", columns=["x"], features=features)


KINDS = [
    pa.int8(), pa.float64(), pa.bool_(), pa.string(), pa.binary(), pa.timestamp("s"), pa.date32(), pa.null(),
    pa.list_(pa.int64()), pa.list_(pa.float32(), 3), pa.struct({"a": pa.list_(pa.struct({"b": pa.string()}))}),
]  # fmt: skip


def test_words_of_types_are_types_again() -> None:
    schema = pa.schema([(f"column {number}", kind) for number, kind in enumerate(KINDS)])
    assert ColumnTypes.from_schema(schema).to_schema() == schema
    assert type_word(pa.large_list(pa.dictionary(pa.int8(), pa.large_string()))) == type_word(
        pa.list_(pa.string_view())
    )
    with pytest.raises(ValueError, match="decimal"):
        ColumnTypes.from_schema(pa.schema({"x": pa.decimal128(5, 2)})).to_schema()
