"""Columns give the samples that dicts gave: the same values, types, orders and errors."""

from __future__ import annotations

import datetime
import itertools
import json
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocks import Numbers, uneven
from hypothesis import given
from hypothesis import strategies as st

for needed in ("orjson", "pyarrow"):
    pytest.importorskip(needed)

import orjson  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from allranks import Dataset  # noqa: E402
from allranks.data import streams  # noqa: E402
from allranks.data.base import BadSample  # noqa: E402
from allranks.data.block_columns import BlockColumns  # noqa: E402
from allranks.data.plan import EpochPlan, choose_layout  # noqa: E402
from allranks.data.sample_columns import SampleColumns, values_of  # noqa: E402
from allranks.data.sources.columns import ArrowValues, TableRows, table_rows  # noqa: E402
from allranks.data.sources.jsonl import _decode_columns, _decode_exactly  # noqa: E402
from allranks.errors import DataError  # noqa: E402

PIECES = [
    *('{"a": 1}', '{"a": 2, "b": "x"}', '{"b": "y", "a": 3}', '{"a": null}', '{"a": "ä\\u0000"}', '{"a": [1, 2]}'),
    *('{"a": 1.5}', '{"a": 1e300}', '{"a": true}', '{"a": 1, "a": 2}', "{}", "[1]", "7", '"x"', "null", ""),
    *('{"a": 1},{"a": 2}', '{"a": [{}', "{}]}", '{"a":', "1}", '{"a": 1}\r', " ", '{"a": "', '"}', "}", "{", ",", "]"),
    *('{"a": 9223372036854775807}', '{"a": 9223372036854775808}', '{"a": -9223372036854775809}'),
    *('{"a": 18446744073709551615}', '{"a": 18446744073709551616}', '{"a": [18446744073709551616]}', '{"a": -0}'),
]


def typed(value: Any) -> str:
    return f"{type(value).__name__} {value!r}"


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), st.booleans())
def test_a_block_is_decoded_as_its_lines_are(lines: list[str], ends: bool) -> None:
    """At once or not at all; also where lines that are no JSON would be some together."""
    data = "\n".join(lines).encode() + b"\n" * ends
    if not data:
        return
    columns = _decode_columns(data)
    if columns is None:
        return
    found = list(SampleColumns(columns, len(next(iter(columns.values())))))
    assert list(map(typed, found)) == [typed(_decode_exactly(line)) for line in data.removesuffix(b"\n").split(b"\n")]


@given(st.lists(st.sampled_from(PIECES[:1]), min_size=1, max_size=5))
def test_a_block_of_objects_is_decoded_at_once(lines: list[str]) -> None:
    """So that the test above compares something."""
    columns = _decode_columns("\n".join(lines).encode())
    assert columns is not None
    assert columns["a"].dtype == np.int64


def test_a_separator_in_the_data_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """If somebody knew the number: two objects in a line, and one in two lines."""
    monkeypatch.setattr("allranks.data.sources.jsonl._SEPARATOR", 5)
    assert _decode_columns(b'{"a":1},5,{"a":2}\n{"a":[{}\n{}]}\n') is not None  # that is why it is random
    monkeypatch.setattr("allranks.data.sources.jsonl._SEPARATOR", 6)
    assert _decode_columns(b'{"a":1},5,{"a":2}\n{"a":[{}\n{}]}\n') is None


ROWS = 40
COLUMNS: dict[str, Any] = {
    "int8": pa.array(np.arange(ROWS) - 20, pa.int8()),
    "uint64": pa.array([(1 << 64) - 1 - row for row in range(ROWS)], pa.uint64()),
    "small uint64": pa.array(range(ROWS), pa.uint64()),
    "float16": pa.array(np.arange(ROWS, dtype=np.float16) / 3),
    "float32": pa.array(np.arange(ROWS, dtype=np.float32) / 3),
    "bool": pa.array([row % 3 == 0 for row in range(ROWS)]),
    "text": pa.array([f"text {row} ä" for row in range(ROWS)]),
    "view": pa.array([f"text {row}" for row in range(ROWS)], pa.string_view()),
    "maybe": pa.array([None if row % 3 else f"{row}" for row in range(ROWS)]),
    "maybe int": pa.array([None if row % 3 else row for row in range(ROWS)]),
    "bytes": pa.array([bytes([row] * row) for row in range(ROWS)]),
    "same": pa.array(["one", "two"] * (ROWS // 2)).dictionary_encode(),
    "list": pa.array([[row] * (row % 4) for row in range(ROWS)], pa.list_(pa.int32())),
    "one length": pa.array([[row, row + 1] for row in range(ROWS)], pa.list_(pa.int16())),
    "maybe list": pa.array([None if row % 3 else [row] for row in range(ROWS)], pa.list_(pa.int32())),
    "fixed": pa.array([[row, row] for row in range(ROWS)], pa.list_(pa.float32(), 2)),
    "when": pa.array(range(ROWS), pa.timestamp("us")),
    "struct": pa.array([{"a": row} for row in range(ROWS)]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_has_the_values_that_its_samples_had(name: str) -> None:
    """Of a table that begins in the middle of another, rows in any order."""
    table = pa.table({name: COLUMNS[name], "row": range(ROWS)}).slice(3, 30)
    rows = np.random.default_rng(0).integers(0, 30, 50)
    found, expected = table_rows(table, "here"), TableRows(table, "here")
    assert isinstance(found, BlockColumns) == (name not in ("when", "struct"))
    for mine, its in zip(found.take(rows), expected.take(rows), strict=True):
        assert str(mine) == str(its)
        assert type(mine[name]) is type(its[name])
        assert getattr(mine[name], "dtype", None) == getattr(its[name], "dtype", None)


def test_lists_of_one_length_become_an_array_without_a_copy() -> None:
    """Others become a list of arrays."""
    rows = table_rows(pa.table({"tokens": COLUMNS["one length"]}), "here")
    assert isinstance(rows, BlockColumns)
    column = rows.columns["tokens"]
    assert isinstance(column, ArrowValues)
    array = column[5:9].to_array()
    assert array is not None
    assert array.tolist() == [[row, row + 1] for row in range(5, 9)]
    assert array.ctypes.data == column.values.values.buffers()[1].address + 5 * 2 * 2
    assert ArrowValues(table_rows(pa.table({"x": COLUMNS["list"]}), "").columns["x"].values, None).to_array() is None  # type: ignore[attr-defined]


def test_text_that_is_not_utf8_is_masked_where_it_is() -> None:
    bad = pa.array([b"one", b"\xff", b"three"]).view(pa.string())
    found = table_rows(pa.table({"text": bad}), "file, row group 7").take(np.arange(3))
    assert found[0] == {"text": "one"}
    assert isinstance(found[1], BadSample)


def files_of(folder: Path, kind: str, documents: list[dict[str, Any]]) -> str:
    for number in range(4):
        some = documents[number::4]
        if kind == "jsonl":
            (folder / f"{number}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in some))
        else:
            pq.write_table(pa.Table.from_pylist(some), folder / f"{number}.parquet", row_group_size=17)
    return str(folder / f"*.{kind}")


DOCUMENTS = [
    {"id": row, "text": f"text {row}", "half": row / 2, "even": row % 2 == 0, "tokens": [row, row + 1]}
    for row in range(997)
]


def options(kind: str) -> dict[str, Any]:
    return {"block_bytes": 600} if kind == "jsonl" else {}


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_batches_of_columns_are_those_of_samples(kind: str, tmp_path: Path) -> None:
    """In the same order, in windows that were merged, in the padded last step; a map makes samples of them."""
    data = getattr(Dataset, kind)(files_of(tmp_path, kind, DOCUMENTS), **options(kind))
    columns = data.batch(24).loader(rank=0, size=2)
    samples = data.map(lambda sample: sample).batch(24).loader(rank=0, size=2)
    steps = 0
    for one, other in zip(columns, samples, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert list(one) == list(other)
        steps += 1
        for name in other:
            assert type(one[name]) is type(other[name])
            assert str(one[name]) == str(other[name])
            assert getattr(one[name], "dtype", None) == getattr(other[name], "dtype", None)
    assert steps == 42


def test_blocks_with_other_columns_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a mixture, or of files with the keys in another order: each row has its own columns, in their order."""
    one = [{"id": row, "a": "x"} for row in range(300)]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(sample)}\n" for sample in one))
    (tmp_path / "b.jsonl").write_text("".join(f'{{"b": {row}, "id": {row + 300}}}\n' for row in range(300)))
    taken: list[int] = []
    select = BlockColumns.select

    def count(self: BlockColumns, rows: Any) -> SampleColumns:
        found = select(self, rows)
        taken.append(len(found))
        return found

    monkeypatch.setattr(BlockColumns, "select", count)
    parts = [Dataset.jsonl(str(tmp_path / name), block_bytes=700) for name in ("a.jsonl", "b.jsonl")]
    seen = []
    mixed = Dataset.mix([(part, 1) for part in parts], stop="all")
    data = mixed.map(lambda sample: seen.append(tuple(sample)) or {"id": sample["id"]})
    ids = [number for batch in data.batch(10, streams=2).loader(rank=0, size=1) for number in batch["id"]]
    assert len(set(ids)) > 560  # a mixture ends between samples of its parts
    assert set(seen) == {("id", "a"), ("b", "id")}
    assert 0 < sum(taken) < 3 * len(ids)


def of_many(function: Any) -> Any:
    """Return a function of many samples, as ``Dataset.filter`` knows it."""
    function.batched = True
    return function


def sample_kinds(loader: Any) -> dict[int, bool]:
    """Return for each step of an epoch whether its samples are columns after all operations."""
    plan = loader._plan
    found = loader._opened_data.transformed_samples(plan, loader.rows, range(plan.steps))
    kinds = [(step, getattr(one.samples, "columns", None) is not None) for one in found for step in one.steps]
    assert [step for step, _ in kinds] == list(range(plan.steps))
    return dict(kinds)


def test_steps_with_padding_stay_columns(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(f'{{"id": {row}}}\n' for row in range(203)))
    loader = Dataset.jsonl(tmp_path, shuffle=False).batch(20, streams=1).loader(rank=0, size=1, prefetch=0)
    assert set(sample_kinds(loader).values()) == {True}
    batches = list(loader)
    assert [batch["id"].dtype for batch in batches] == [np.int64] * 11
    assert [row for batch in batches for row in batch["id"][batch.mask].tolist()] == list(range(203))
    assert batches[-1].mask.tolist() == [True] * 3 + [False] * 17


def test_padding_that_workers_return_is_not_bad(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(f'{{"id": {row}}}\n' for row in range(203)))
    loader = Dataset.jsonl(tmp_path).map(dict, workers=1).batch(20).loader(rank=0, size=1)
    assert sum(int((~batch.mask).sum()) for batch in itertools.islice(loader, len(loader))) == 17
    assert loader.audit().bad == 0
    loader.close()


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_masked_samples_leave_the_others_in_columns(kind: str, tmp_path: Path) -> None:
    """Of a filter, of a map that raises, and of both; the rows have the values of masked rows."""

    def fails(samples: Any) -> Any:
        if 501 in samples["id"]:
            raise ValueError("not this")
        return {"id": samples["id"], "text": samples["text"], "double": 2 * np.asarray(samples["id"])}

    plain = getattr(Dataset, kind)(files_of(tmp_path, kind, DOCUMENTS), **options(kind))
    numbers = {
        place: number
        for batch in plain.batch(24).loader(rank=0, size=1)
        for place, number in zip(batch.ids.tolist(), batch["id"].tolist(), strict=True)
    }
    data = plain.filter(of_many(lambda samples: np.asarray(samples["id"]) % 50 != 7))
    data = data.map(fails, batched=True, on_error="mask").filter(of_many(lambda samples: samples["id"] != 900))
    loader = data.batch(24).loader(rank=0, size=1, prefetch=0)
    assert set(sample_kinds(loader).values()) == {True}
    expected = {row for row in range(len(DOCUMENTS)) if row % 50 != 7 and row not in (501, 900)}
    seen, columns = set(), ("id", "text", "double")
    for batch in itertools.islice(loader, len(loader)):
        for place, good, *values in zip(batch.ids.tolist(), batch.mask, *map(batch.get, columns), strict=True):
            row = numbers[place]
            assert values == ([row, f"text {row}", 2 * row] if good else [0, "", 0])
            seen |= {row} if good else set()
        assert batch["id"].dtype == batch["double"].dtype == np.int64
    assert seen == expected
    assert loader.audit().bad == 1  # a sample that a filter leaves out is not bad


def test_a_filter_leaves_out_values_of_another_type(tmp_path: Path) -> None:
    """Their columns would not fit the others."""
    lines = [{"n": "x" if row % 9 == 4 else row} for row in range(300)]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    data = Dataset.jsonl(tmp_path, shuffle=False)
    data = data.filter(of_many(lambda samples: [type(one) is int for one in samples["n"]]))
    loader = data.batch(10, streams=1).loader(rank=0, size=1)
    found = [(batch["n"].dtype, batch["n"][batch.mask].tolist()) for batch in loader]
    assert {dtype for dtype, _ in found} == {np.dtype(np.int64)}
    assert [one for _, some in found for one in some] == [row for row in range(300) if row % 9 != 4]


def test_a_line_that_is_no_json_leaves_other_steps_in_columns(tmp_path: Path) -> None:
    """Its block has no columns; a step without samples of that block has."""
    lines = [f'{{"id": {row}}}' for row in range(400)]
    lines[123] = "{"
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    loader = Dataset.jsonl(tmp_path, block_bytes=100, shuffle=False).batch(10, streams=1).loader(rank=0, size=1)
    others = [step for step, is_columns in sample_kinds(loader).items() if not is_columns]
    assert others == [11, 12]
    batches = itertools.islice(loader, len(loader))
    ids = [row for batch in batches for row in batch["id"][batch.mask].tolist()]
    assert ids == [row for row in range(400) if row != 123]
    assert loader.audit().bad == 1


def test_a_function_that_changes_dicts_and_raises_changes_them_once(tmp_path: Path) -> None:
    """It is called again for the samples for which it does not raise."""

    def change(samples: Any) -> Any:
        for sample in samples:
            sample["id"] += 1000
            if sample["id"] == 1500:
                raise ValueError("not this")
        return samples

    data = Dataset.jsonl(files_of(tmp_path, "jsonl", DOCUMENTS), block_bytes=600)
    for first in (data, data.map(dict)):
        loader = first.map(change, batched=True, on_error="mask").batch(24).loader(rank=0, size=1)
        found = [number for batch in loader for number in batch["id"][batch.mask].tolist()]
        assert sorted(found) == [row for row in range(1000, 1997) if row != 1500]


def test_windows_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above compares them; merged or not, the samples are the same."""
    files = files_of(tmp_path, "jsonl", DOCUMENTS)

    def ids() -> list[Any]:
        loader = Dataset.jsonl(files, block_bytes=600).batch(24, streams=4, window=8).loader(rank=0, size=1)
        return [batch["id"].tolist() for batch in loader]

    first = next(streams._MERGED_KEYS)
    found = ids()
    assert next(streams._MERGED_KEYS) > first + 4
    monkeypatch.setattr(streams, "_MOST_MERGED_BYTES", 0)
    assert ids() == found


def test_text_becomes_a_list_when_it_is_asked_for(tmp_path: Path) -> None:
    loader = Dataset.parquet(files_of(tmp_path, "parquet", DOCUMENTS)).batch(24).loader(rank=0, size=1)
    next(batches := iter(loader))  # of the first, samples were made, to know the types
    batch = next(batches)
    held = batch.columns._columns  # type: ignore[attr-defined]
    assert isinstance(held["text"], ArrowValues)
    assert batch["text"] == [f"text {row}" for row in batch["id"]]
    assert isinstance(held["text"], list)
    assert dict(batch)["tokens"].shape == (24, 2)
    loader.close()


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_batched_map_gets_columns(kind: str, workers: int, tmp_path: Path) -> None:
    """And returns columns, or a list; a filter too. Padding and filtered rows are left out."""

    def longer(samples: Any) -> Any:
        return {"text": [text + "!" for text in samples["text"]], "double": 2 * np.asarray(samples["id"])}

    data = getattr(Dataset, kind)(files_of(tmp_path, kind, DOCUMENTS), **options(kind)).map(
        longer, batched=True, workers=workers
    )
    data = data.map(lambda samples: [{**one, "n": len(one["text"])} for one in samples], batched=True)
    data = data.filter(lambda one: one["double"] != 20)
    seen = 0
    for batch in data.batch(24).loader(rank=0, size=1):
        good = batch.mask
        assert (batch["double"][good] % 2 == 0).all()
        texts = [text for text, here in zip(batch["text"], good, strict=True) if here]
        assert texts == [f"text {number // 2}!" for number in batch["double"][good]]
        assert batch["n"][good].tolist() == list(map(len, texts))
        seen += int(good.sum())
    assert seen == len(DOCUMENTS) - 1


def test_samples_that_a_batched_map_changes_are_changed(tmp_path: Path) -> None:
    """A function that changes the dicts and returns what it got did that before there were columns."""

    def change(samples: Any) -> Any:
        for sample in samples:
            sample["id"] += 1000
            sample["new"] = sample["text"].upper()
        assert samples["new"][0].startswith("TEXT")
        return samples

    data = Dataset.jsonl(files_of(tmp_path, "jsonl", DOCUMENTS), block_bytes=600).map(change, batched=True)
    found = [number for batch in data.batch(24).loader(rank=0, size=1) for number in batch["id"][batch.mask]]
    assert sorted(found) == list(range(1000, 1997))


def test_a_batched_map_of_columns_that_fails_names_the_sample(tmp_path: Path) -> None:
    def fails(samples: Any) -> Any:
        if 500 in samples["id"]:
            raise ValueError("not this")
        return {"id": samples["id"]}

    files = files_of(tmp_path, "jsonl", DOCUMENTS)
    with pytest.raises(DataError, match=r"fails raised ValueError for sample \d+ in epoch 0: not this"):
        list(Dataset.jsonl(files).map(fails, batched=True).batch(24).loader(rank=0, size=1))
    loader = Dataset.jsonl(files).map(fails, batched=True, on_error="mask").batch(24).loader(rank=0, size=1)
    assert sum(int(batch.mask.sum()) for batch in loader) == len(DOCUMENTS) - 1
    for made, says in (
        ({"id": [1]}, "1 values in column 'id'"),
        ({"id": np.int64(3)}, "no values in column 'id'|int64"),
    ):
        with pytest.raises(DataError, match=says):
            list(Dataset.jsonl(files).map(lambda _, made=made: made, batched=True).batch(24).loader(rank=0, size=1))


def test_a_column_of_another_type_in_a_later_block_is_named(tmp_path: Path) -> None:
    """As it was for samples."""
    lines = [{"n": row} for row in range(400)] + [{"n": "x"}] * 30
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    data = Dataset.jsonl(str(tmp_path / "a.jsonl"), block_bytes=300, shuffle=False).batch(10, streams=1)
    with pytest.raises(DataError, match="column 'n' of sample 400 is 'x', a str; before it was a int"):
        list(data.loader(rank=0, size=1))


def test_values_of_columns() -> None:
    """Numbers of Python, rows of arrays, dates as they are."""
    when = datetime.datetime(2026, 1, 1)
    assert [type(one) for one in values_of(np.arange(2))] == [int, int]
    assert values_of(np.eye(2))[1].tolist() == [0, 1]
    assert values_of([when]) == [when]
    assert SampleColumns({}, 3)[1] == {}
    assert orjson.loads(b"{}") == {}


def test_nobody_waits_for_blocks_that_a_closed_pool_has_dropped() -> None:
    """The thread of a loader that is closed in the middle of an epoch ends."""
    index = uneven(200)
    plan = EpochPlan(index, choose_layout(index, global_batch=4, seed=0, shuffle=True, streams=1), 0)
    pool, free = ThreadPoolExecutor(1), threading.Event()
    pool.submit(free.wait, 60)
    stream = streams.SampleStream(plan, 0, reader=Numbers(index), pool=pool)
    stream.prefetch_blocks(np.arange(50))
    pool.shutdown(wait=False, cancel_futures=True)
    free.set()
    with pytest.raises(CancelledError):
        stream.locate_samples(np.arange(50))
