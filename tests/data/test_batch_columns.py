"""Samples become columns of one kind, on every rank; rows without a sample are masked."""

from __future__ import annotations

import numpy as np
import pytest

from allranks.data.base import BadSample
from allranks.data.batch import BatchCollator
from allranks.errors import DataError


def columns(*samples, example=None, collator=None):
    made = collator or BatchCollator(lambda: example)
    return made.make_columns(samples, np.arange(100, 100 + len(samples)))


def test_numbers_and_arrays_are_stacked_and_all_else_is_listed():
    """int, float, bool and arrays make arrays; text, lists and None make lists."""
    found, mask = columns(
        {"n": 1, "x": 0.5, "b": True, "a": np.zeros(3, np.int32), "s": "one", "l": [1, 2], "o": None},
        {"n": 2, "x": 1.5, "b": False, "a": np.ones(3, np.int32), "s": "two", "l": [], "o": "here"},
    )
    assert mask.tolist() == [True, True]
    assert {name: found[name].dtype.name for name in "nxba"} == {
        "n": "int64",
        "x": "float64",
        "b": "bool",
        "a": "int32",
    }
    assert found["a"].shape == (2, 3)
    assert (found["s"], found["l"], found["o"]) == (["one", "two"], [[1, 2], []], [None, "here"])


def test_masked_rows_look_like_the_others():
    """A row without a sample has zeros and empty text of the same shape and kind."""
    found, mask = columns({"t": np.arange(2), "s": "a"}, BadSample("no"), {"t": np.arange(2), "s": "b"})
    assert mask.tolist() == [True, False, True]
    assert found["t"].tolist() == [[0, 1], [0, 0], [0, 1]]
    assert found["s"] == ["a", "", "b"]


def test_rows_are_known_from_an_example_where_none_was_seen():
    """A rank that begins with padding knows from an example what its rows look like."""
    found, mask = columns(BadSample("padding"), example={"t": np.ones(4, np.float32)})
    assert not mask.any()
    assert (found["t"].shape, found["t"].dtype) == ((1, 4), np.float32)


def test_samples_that_are_no_dicts_have_columns_too():
    """A tuple's columns are its numbers; anything else is one column, ``value``."""
    assert columns((1, "a"), (2, "b"))[0]["1"] == ["a", "b"]
    assert columns("a", "b")[0] == {"value": ["a", "b"]}
    assert columns(0, 7)[0]["value"].tolist() == [0, 7]


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        (({"x": 1}, {"x": 1.5}), "column 'x' of sample 101 is 1.5, a float; before it was a int"),
        (({"x": 1}, {"x": None}), "column 'x' of sample 101 is None, a NoneType; before it was a int"),
        (({"x": None}, {"x": 3}), "column 'x' of sample 101 is 3, a int; before it was a NoneType"),
        (({"x": 1}, {"y": 1}), r"sample 101 has the columns \['y'\]; before they were \['x'\]"),
        (({"x": 1}, {"x": 1, "y": 1}), r"sample 101 has the columns \['x', 'y'\]"),
        (
            ({"x": np.zeros(2)}, {"x": np.zeros(3)}),
            r"column 'x' of sample 101 is float64\[3\]; before it was float64\[2\]",
        ),
        (({"x": np.zeros(2)}, {"x": np.zeros(2, "i4")}), r"is int32\[2\]; before it was float64\[2\].*\.pack"),
    ],
)
def test_a_column_is_of_one_kind(samples, says):
    """What would have another dtype or shape on another rank is an error that names the sample."""
    with pytest.raises(DataError, match=says):
        columns(*samples)


def test_arrays_of_several_lengths_are_refused_and_lists_are_not():
    rows = [np.arange(4), np.arange(5)]
    with pytest.raises(
        DataError, match=r"'ids' of sample 101 is int64\[5\]; before it was int64\[4\].*array\.tolist\(\)"
    ):
        columns(*({"ids": row} for row in rows))
    assert columns(*({"ids": row.tolist()} for row in rows))[0]["ids"] == [[0, 1, 2, 3], [0, 1, 2, 3, 4]]


def test_a_column_is_of_one_kind_over_batches():
    """The first batch decides for all that follow."""
    collator = BatchCollator(lambda: None)
    columns({"x": 1}, collator=collator)
    with pytest.raises(DataError, match="a float; before it was a int"):
        columns({"x": 0.5}, collator=collator)


def test_numbers_of_numpy_are_stacked_in_their_own_kind():
    """Also where the first row is masked: its value is a zero of that kind."""
    found, mask = columns(
        BadSample("no sample"), {"n": np.int16(7), "f": np.float32(0.5)}, example={"n": np.int16(3), "f": np.float32(1)}
    )
    assert (found["n"].tolist(), found["n"].dtype, found["f"].dtype) == ([0, 7], np.int16, np.float32)
    assert mask.tolist() == [False, True]


@pytest.mark.needs("torch")
def test_tensors_are_stacked_as_arrays_are():
    """They would be a list of tensors, which ``to_torch()`` gave on in silence."""
    import torch

    rows = [(torch.full((2,), float(n)), torch.tensor(n)) for n in range(3)]
    found, mask = columns(rows[1], BadSample("no"), rows[2])
    assert mask.tolist() == [True, False, True]
    assert found["0"].tolist() == [[1.0, 1.0], [0.0, 0.0], [2.0, 2.0]]
    assert (found["0"].dtype, found["1"].tolist()) == (np.float32, [1, 0, 2])
    with pytest.raises(DataError, match=r"column 'value' of sample 101 is float32\[3\]; before it was float32\[2\]"):
        columns(torch.zeros(2), torch.zeros(3))


@pytest.mark.needs("torch")
def test_a_tensor_that_numpy_cannot_hold_is_refused():
    import torch

    for tensor, says in (
        (torch.zeros(2, dtype=torch.bfloat16), "BFloat16"),
        (torch.zeros(2, requires_grad=True), "grad"),
    ):
        with pytest.raises(DataError, match=rf"column 'value' of sample 100, a Tensor of torch\..*{says}.*In a \.map"):
            columns(tensor)
