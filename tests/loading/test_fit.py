"""What goes where, what is left over, and what the report says of it."""

from __future__ import annotations

import json

import pytest

from allranks.arrays.base import DeclaredArray, RankSplit
from allranks.arrays.cast import is_castable
from allranks.loading.fit import (
    LeafAmount,
    LoadDifference,
    StoredArray,
    fit_leaves,
    fit_values,
    mark_allowed,
)
from allranks.loading.report import LoadReport, PrefixCoverage, coverage_by_prefix


def array(path: str, shape: tuple[int, ...] = (4, 4), dtype: str = "float32", kind: str = "") -> DeclaredArray:
    return DeclaredArray(path, shape, dtype, RankSplit((1,) * len(shape), ((0,),)), kind)


def test_every_kind_of_difference_is_found_at_once() -> None:
    """Missing, unexpected, another shape, another kind of number, a cast (rounded or not), and memory that is tied."""
    template = [
        array("a"),
        array("new"),
        array("c"),
        array("i"),
        array("up"),
        array("down", dtype="bfloat16"),
        array("t"),
    ]
    stored = {
        "a": StoredArray((4, 4), "float32"),
        "c": StoredArray((4, 5), "float32"),
        "i": StoredArray((4, 4), "int8"),
        "up": StoredArray((4, 4), "float16"),
        "down": StoredArray((4, 4), "float32"),
        "old": StoredArray((2,), "float32"),
    }
    found = fit_leaves(template, stored, {name: name for name in stored}, tied={6: 0})
    assert found.pairs == ((0, "a"), (4, "up"), (5, "down"))
    assert found.differences == (
        LoadDifference("missing", "new", "", "float32[4, 4]", ""),
        LoadDifference("tied", "t", "a", "float32[4, 4]", ""),
        LoadDifference("unexpected", "", "old", "", "float32[2]"),
        LoadDifference("reshaped", "c", "c", "float32[4, 4]", "float32[4, 5]"),
        LoadDifference("unlike", "i", "i", "float32[4, 4]", "int8[4, 4]"),
        LoadDifference("recast", "up", "up", "float32[4, 4]", "float16[4, 4]"),
        LoadDifference("recast", "down", "down", "bfloat16[4, 4]", "float32[4, 4]", lossy=True),
    )
    assert [one.kind for one in found.refused_differences] == ["missing", "unexpected", "reshaped", "unlike"]
    left = mark_allowed(found, allow_missing=["new", "c"], allow_unexpected=["o*"])
    assert [one.kind for one in left.refused_differences] == ["unlike"]


@pytest.mark.parametrize(
    ("found", "wanted", "may"),
    [
        ("float32", "bfloat16", True),
        ("bfloat16", "float32", True),
        ("float8_e4m3fn", "float32", True),
        ("int32", "int64", True),
        ("int64", "int32", False),
        ("int8", "float32", False),
        ("bool", "uint8", False),
        ("float32", "int32", False),
        ("complex64", "complex128", True),
        ("complex128", "complex64", False),
    ],
)
def test_floats_are_cast_and_integers_only_widened(found: str, wanted: str, may: bool) -> None:
    """An integer where a float is wanted may be a quantized one: that is not the number."""
    assert is_castable(found, wanted) is may


def test_values_are_taken_from_values_and_from_arrays_without_dimensions() -> None:
    """Orbax stores a step as an array; a value never changes its type."""
    wanted = {"step": 0, "name": "a", "lr": 0.1, "none": None, "gone": 1, "flag": True}
    values, scalars, wrong = fit_values(
        wanted,
        {"name": "b", "none": 4, "flag": 1},
        {"step": StoredArray((), "int64"), "lr": StoredArray((2,), "float32")},
        {name: name for name in ("step", "name", "lr", "none", "flag")},
    )
    assert (values, scalars) == ({"name": "b", "none": 4}, {"step": "step"})
    assert [(one.kind, one.path) for one in wrong] == [("unlike", "lr"), ("missing", "gone"), ("unlike", "flag")]


def test_coverage_is_the_least_of_leaves_parameters_and_bytes() -> None:
    """99.99998 % of the parameters may be a third of the leaves."""
    assert LeafAmount(1, 10_000_000, 40_000_000).share_of(LeafAmount(3, 10_000_002, 40_000_008)) == pytest.approx(1 / 3)
    assert LeafAmount().share_of(LeafAmount()) == 1.0


def test_prefixes_are_told_where_they_part_and_the_worst_first() -> None:
    """One prefix over all says nothing: the next level does."""
    amount = LeafAmount(1, 4, 16)
    template = {"model.enc.w": amount, "model.enc.b": amount, "model.head.w": amount}
    assert coverage_by_prefix(template, ["model.enc.w", "model.enc.b"]) == (
        PrefixCoverage("model.head", LeafAmount(), amount),
        PrefixCoverage("model.enc", LeafAmount(2, 8, 32), LeafAmount(2, 8, 32)),
    )
    assert coverage_by_prefix({}, []) == ()


def report(**changes: object) -> LoadReport:
    whole = LeafAmount(3, 10_000_002, 40_000_008)
    most = LeafAmount(2, 10_000_000, 40_000_000)
    known = {
        "path": "a.pt",
        "format": "torch.save",
        "checked": "by CRC",
        "notes": (),
        "rename": {},
        "by_prefix": (),
        "template": whole,
        "loaded": most,
        "file": most,
        "used": most,
        "differences": (LoadDifference("missing", "alpha", "", "float32[2]", ""),),
    }
    return LoadReport(**(known | changes))  # type: ignore[arg-type]


def test_the_report_reads_as_a_table_and_as_json() -> None:
    """And what is not all never reads as 100 %."""
    text = str(report(rename={"model.*": "*"}, loaded=LeafAmount(3, 10_000_001, 40_000_007)))
    assert "99.99999 % of the template loaded" in text
    assert "alpha: float32[2]" in text
    assert 'did you mean: rename={"model.*": "*"}' in text
    told = json.loads(report(before=("x",), after=("y",)).to_json())
    assert told["coverage"] == pytest.approx(2 / 3)
    assert told["differences"][0]["path"] == "alpha"
    assert told["before"] == ["x"]
    assert "state" not in told


def test_a_load_that_changed_nothing_says_so() -> None:
    """Digests before and after, equal on all ranks: the values were there, or never arrived."""
    assert "nothing has changed" in str(report(before=("x", "x"), after=("x", "x")))
    assert "nothing has changed" not in str(report(before=("x", "x"), after=("x", "y")))
    assert "nothing has changed" not in str(report(before=("",), after=("",)))
