"""Functions that fill an array again for each sample, or change their samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from allranks import Dataset
from allranks.data.copies import take_sample

ROW, COLUMN, BUFFER, LIST, SAMPLE = np.zeros(2), np.zeros(64), bytearray(8), [0.0], {"x": np.zeros(1)}
RING = [np.zeros(1), np.zeros(1)]


def values_of(data: Dataset, name: str = "x") -> list[float]:
    found = []
    for batch in data.batch(10).loader(rank=0, size=1):
        for value, is_good in zip(batch[name], batch.mask, strict=True):
            found.append(float(np.ravel(value)[0])) if is_good else None
    return sorted(found)


def fill_row(sample: Any) -> Any:
    ROW[:] = sample["id"]
    return {"x": ROW}


def fill_view(sample: Any) -> Any:
    ROW[:] = sample["id"]
    return {"x": ROW[:1]}


def fill_ring(sample: Any) -> Any:
    RING[sample["id"] % 2][:] = sample["id"]
    return {"x": RING[sample["id"] % 2]}


def fill_bytes(sample: Any) -> Any:
    array = np.frombuffer(BUFFER, np.float64)
    array[:] = sample["id"]
    return {"x": array}


def fill_list(sample: Any) -> Any:
    LIST[0] = float(sample["id"])
    return {"x": LIST}


def fill_sample(sample: Any) -> Any:
    SAMPLE["x"][:] = sample["id"]
    return SAMPLE


def fill_nested(sample: Any) -> Any:
    ROW[:] = sample["id"]
    return {"x": {"y": [ROW]}}


def fill_value(sample: Any) -> Any:
    ROW[:] = sample["id"]
    return ROW


def fill_tuple(sample: Any) -> Any:
    ROW[:] = sample["id"]
    return ROW, 1


@pytest.mark.parametrize("fill", [fill_row, fill_view, fill_ring, fill_bytes, fill_list, fill_sample])
def test_a_map_may_fill_one_array_again(fill: Callable[..., Any]) -> None:
    data = Dataset.sequence([{"id": one} for one in range(50)], shuffle=False)
    assert values_of(data.map(fill)) == [*range(50)]


@pytest.mark.parametrize(("fill", "name"), [(fill_value, "value"), (fill_tuple, "0")])
def test_also_a_map_whose_samples_are_no_dicts(fill: Callable[..., Any], name: str) -> None:
    data = Dataset.sequence([{"id": one} for one in range(50)], shuffle=False)
    assert values_of(data.map(fill), name) == [*range(50)]


def test_also_inside_of_dicts_and_lists() -> None:
    data = Dataset.sequence([{"id": one} for one in range(50)], shuffle=False).map(fill_nested)
    assert values_of(data.map(lambda sample: {"x": sample["x"]["y"][0]})) == [*range(50)]


@pytest.mark.parametrize("is_view", [False, True])
def test_a_batched_map_may_fill_one_array_again(is_view: bool) -> None:
    """The batches are of other sizes than the calls."""
    columns: dict[int, Any] = {}

    def fill(samples: Any) -> Any:
        count = len(samples["id"])
        column = COLUMN[:count] if is_view else columns.setdefault(count, np.zeros(count))
        column[:] = samples["id"]
        return {"x": column}

    data = Dataset.sequence([{"id": one} for one in range(50)], shuffle=False)
    rows = [
        value
        for batch in data.map(fill, batched=True).batch(2).loader(rank=0, size=1, prefetch=8)
        for value in [batch["x"]]
    ]
    assert sorted(np.concatenate(rows).tolist()) == [*range(50)]


def test_a_torch_tensor_may_be_filled_again() -> None:
    torch = pytest.importorskip("torch")
    row = torch.zeros(2)
    data = Dataset.sequence([{"id": one} for one in range(50)], shuffle=False)
    assert values_of(data.map(lambda sample: {"x": row.fill_(sample["id"])[:1]})) == [*range(50)]


def grow_array(sample: Any) -> Any:
    sample["x"] += 100
    return sample


def grow_list(sample: Any) -> Any:
    sample["x"][0] += 100
    return {"x": sample["x"]}


@pytest.mark.parametrize(
    ("rows", "grow"),
    [
        ([{"x": np.array([float(one)])} for one in range(9)], grow_array),
        ([{"x": [float(one)]} for one in range(9)], grow_list),
        ([{"x": float(one)} for one in range(9)], grow_array),
        ([{"x": one} for one in np.arange(9.0).reshape(9, 1)], grow_array),
    ],
)
@pytest.mark.parametrize("is_random", [False, True])
def test_a_map_that_changes_its_sample_changes_no_row_of_a_sequence(rows: Any, grow: Any, is_random: bool) -> None:
    data = Dataset.sequence(rows, shuffle=False)
    loader = (data.random(0) if is_random else data).map(grow).batch(3).loader(rank=0, size=1)
    for _ in range(3):
        found = [float(np.ravel(value)[0]) for batch in loader for value in batch["x"]]
        assert len(found) == 9
        assert all(100 <= value < 109 for value in found)
    assert [float(np.ravel(row["x"])[0]) for row in rows] == [*range(9)]


def test_what_nothing_else_refers_to_is_not_copied() -> None:
    """Nor what the sample had before under the same name."""

    def address(value: Any) -> int:
        return int(value.__array_interface__["data"][0])

    addresses = []

    def make(kind: str) -> Any:
        array = np.zeros(9) if kind == "array" else np.zeros(99)[3:]
        addresses.append(address(array))
        return {"x": array, "n": 1}

    for kind in ("array", "view"):
        assert address(take_sample([make(kind)])["x"]) == addresses.pop()
    given = {"x": ROW, "y": ROW}
    made = take_sample([{"x": given["x"], "z": given["y"]}], given)
    assert made["x"] is ROW
    assert made["z"] is not ROW
    assert take_sample([given], given) is given
