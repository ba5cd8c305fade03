"""Data sets of Hugging Face by name: the samples that their library streams, with the plan's guarantees; or refused."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import allranks
from allranks import SimulatedWorld, World
from allranks.data.index import Index
from allranks.errors import DataChanged, DataError, StorageError

datasets = pytest.importorskip("datasets")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("orjson")

from allranks.data.sources import web  # noqa: E402
from allranks.data.sources.named import named  # noqa: E402
from allranks.data.sources.types import Types, word  # noqa: E402

SIZES = {"b": 40, "a": 7, "c": 93}  # not in the order of their names


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test uses what another has left in a cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


def table(name: str, many: int) -> Any:
    return pa.table(
        {
            "x": pa.array([ord(name) * 1000 + row for row in range(many)], pa.int64()),
            "text": [f"{name}{row} →" for row in range(many)],
            "numbers": pa.array([[row] * (row % 3) for row in range(many)], pa.list_(pa.int32())),
            "more": pa.array([{"score": row / 2, "tags": ["t"]} for row in range(many)]),
            "none": pa.nulls(many) if name == "c" else pa.array([None, "one"] * many, pa.string()).slice(0, many),
        }
    )


def write_parquet(folder: Path, name: str, many: int) -> Path:
    path = folder / f"{name}.parquet"
    pq.write_table(table(name, many), path, row_group_size=11)
    return path


def write_arrow(folder: Path, name: str, many: int) -> Path:
    one, path = table(name, many).drop_columns("none"), folder / f"{name}.arrow"
    with (pa.ipc.new_file if name == "a" else pa.ipc.new_stream)(path, one.schema) as file:
        file.write_table(one, max_chunksize=11)
    return path


def lines(name: str, many: int) -> bytes:
    """What JSON leaves open: columns that some lines lack, integers among floats, times, an empty line."""
    said = []
    for row in range(many):
        one = {"x": row, "name": name, "when": "2026-11-22T05:00:00", "number": 1 if row else 0.5}
        one |= {"nested": {"a": [row], **({"b": row / 2} if row % 2 else {})}} if row != 3 else {}
        said.append(json.dumps(one) + "\n" * (1 + (row == 5)))
    return "".join(said).encode()


def write_json(folder: Path, name: str, many: int) -> Path:
    path = folder / f"{name}.jsonl"
    path.write_bytes(lines(name, many))
    return path


def write_json_gz(folder: Path, name: str, many: int) -> Path:
    path = folder / f"{name}.jsonl.gz"
    path.write_bytes(gzip.compress(lines(name, many)))
    return path


def write_text(folder: Path, name: str, many: int) -> Path:
    path = folder / f"{name}.txt"
    path.write_bytes("\r\n".join(f"{name} {row} ä" * (row % 4) for row in range(many)).encode())
    return path


WRITE = {"parquet": write_parquet, "arrow": write_arrow, "json": write_json, "text": write_text}
Samples = list[Any]


def plain(value: Any) -> Any:
    """Return a sample without NumPy, as datasets has it."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def samples(path: str, **options: Any) -> Samples:
    source = named(path, **options)
    index = Index.decode(source.index().encode())
    reader = named(path, **options).open(index)  # another rank, which has the index and asks nobody
    return [one for block in range(len(index)) for one in reader.read(block).take(np.arange(index.rows[block]))]


def streamed(path: str, split: str | None = "train", **options: Any) -> Samples:
    return list(datasets.load_dataset(path, split=split, streaming=True, **options))


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
    (batch,) = data.skip(38).take(6).batch(6, lanes=1).loader(rank=0, size=1)
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


def csv_of(folder: Path) -> dict[str, Any]:
    (folder / "z.csv").write_text("a,b\n1,2\n")
    return {"path": "csv", "data_files": str(folder / "z.csv")}


REFUSED: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "another format": (csv_of, "it is of 'csv', of which the plan knows no files"),
    "another schema": (
        another_schema,
        "b.parquet has not the columns.*numbers: .int32. by its features, no column.*x: int64 by its .*, int32 in the",
    ),
    "features": (with_features, "x: string by its features, int64 in the file"),
    "an option": (lambda to: json_of(to, '{"x": 1}') | {"encoding": "latin-1"}, "encoding='latin-1', which the plan"),
    "filters": (lambda to: {**another_schema(to), "filters": [("x", "==", 1)]}, r"filters=\[\('x', '==', 1\)\]"),
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
    "twice": (lambda to: {"path": "json", "data_files": [json_of(to, '{"x": 1}')["data_files"]] * 2}, "is in it twice"),
    "a list in JSON": (
        lambda to: json_of(to, '[{"x": 1}]', "z.json"),
        "it has no features: its files are no JSON lines",
    ),
    "JSON over lines": (
        lambda to: json_of(to, '{\n "x": 1\n}\n', "z.json"),
        "line 1 of the block at byte 0 does not fit",
    ),
    "mixed types": (lambda to: json_of(to, '{"x": 1}\n{"x": "a"}\n'), "its features hold what a line of JSON does not"),
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
    with pytest.raises(DataError, match=r"'parquet' is a name. Say streaming=True"):
        allranks.Dataset.huggingface("parquet", data_files=str(path))
    with pytest.raises(DataError, match="split, streaming go with the name of a data set, not with a Dataset"):
        allranks.Dataset.huggingface(datasets.Dataset.from_dict({"x": [1]}), split="train", streaming=True)


def test_a_rank_that_asks_for_something_else_is_told(tmp_path: Path) -> None:
    path = str(write_parquet(tmp_path, "a", 20))
    index = named("parquet", data_files={"train": path, "test": [path]}, split="train").index()
    with pytest.raises(
        DataChanged, match=r"this rank reads parquet, split='test'.*what was indexed is .*split='train'"
    ):
        named("parquet", data_files={"train": path, "test": [path]}, split="test").open(index)


def test_a_note_is_no_part_of_the_digest(tmp_path: Path) -> None:
    """The same files in another folder are the same data; other types are other data."""
    digests = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        index = named("json", data_files=str(write_json(folder, "a", 9))).index()
        assert str(folder) in index.note
        assert (index.slice(2, 5).note, Index.decode(index.encode()).note) == (index.note, index.note)
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
    assert Types.of(schema).schema() == schema
    assert word(pa.large_list(pa.dictionary(pa.int8(), pa.large_string()))) == word(pa.list_(pa.string_view()))
    with pytest.raises(ValueError, match="decimal"):
        Types.of(pa.schema({"x": pa.decimal128(5, 2)})).schema()


class Server(SimpleHTTPRequestHandler):
    """Ranges of files, as the web has them; ``failures`` requests fail first; without ``ranges`` all is sent."""

    failures = 0
    ranges = True
    sent = 0

    def do_GET(self) -> None:
        if type(self).failures:
            type(self).failures -= 1
            self.send_error(503)
            return
        data = Path(self.translate_path(self.path)).read_bytes()
        asked = self.headers.get("Range")
        if asked and self.ranges:
            begin, _, end = asked.removeprefix("bytes=").partition("-")
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{end}/{len(data)}")
            data = data[int(begin) : int(end or len(data)) + 1]
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        type(self).sent += len(data)
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path, **how: Any) -> Iterator[tuple[type[Server], str]]:
    kind = type("OneServer", (Server,), how)
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: kind(*args, directory=str(folder)))
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a reader that has enough hangs up
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield kind, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_files_of_the_web_are_read_in_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank of four reads a quarter of them; a server that fails for a moment is asked again."""
    monkeypatch.setattr(web, "_PAUSES_S", (0.01, 0.01, 0.01))
    noise = np.random.default_rng(0).integers(0, 256, (4000, 200), np.uint8)
    rows = pa.table({"x": list(range(4000)), "y": [row.tobytes() for row in noise]})
    names = ["a.parquet", "b%20b.parquet"]
    for name in ("a.parquet", "b b.parquet"):
        pq.write_table(rows, tmp_path / name, row_group_size=200)
    with serving(tmp_path) as (server, root):
        source = named("parquet", data_files=[f"{root}/{name}" for name in names])
        index = source.index()
        reader = source.open(index)
        server.failures, server.sent = 2, 0
        taken = [row for block in range(0, len(index), 4) for row in reader.read(block).take(np.arange(200))]
        assert [one["x"] % 800 for one in taken] == [*range(200)] * 10
        whole = sum(path.stat().st_size for path in tmp_path.glob("*.parquet"))
        assert reader.bytes_read < 0.28 * whole  # and the footers
        assert server.sent == reader.bytes_read
        again = source.index()  # the server says when files were changed
        assert again.digest == index.digest
        (tmp_path / "a.parquet").write_bytes(b"PAR1" * 9)
        with pytest.raises(
            DataChanged, match=r"a.parquet has changed since it was indexed: expected .* bytes, found 36"
        ):
            source.open(index).read(0)


def test_a_server_without_ranges_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_PAUSES_S", (0.01,))
    (tmp_path / "a.txt").write_bytes(b"line\n" * 100_000)
    with serving(tmp_path, ranges=False) as (_, root):
        files = web.WebFiles(root)
        with pytest.raises(StorageError, match=r"sends all of 'a.txt' where a range"):
            files.read("a.txt", 10, [memoryview(bytearray(10))])
        assert files.size("nope.txt") is None
        with pytest.raises(StorageError, match="it can only be read"):
            files.put("a", b"")


def test_a_name_of_the_hub_is_its_files_at_one_commit(tmp_path: Path) -> None:
    """Of a hub on loopback, asked by the hub's own libraries."""
    environ = {**os.environ, "HF_HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "caches")}
    program = Path(__file__).parent / "programs" / "hub.py"
    for name, many in SIZES.items():
        write_parquet(tmp_path, name, many)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["root"] == f"hf://datasets/owner/name@{'a' * 40}"
    assert said["rows"] == streamed("parquet", data_files=f"{tmp_path}/*.parquet")
