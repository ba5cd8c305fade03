"""All differences between a template and a checkpoint in one go, with what may be meant."""

from __future__ import annotations

from typing import Any

from allranks.arrays.base import DeclaredArray, RankSplit
from allranks.checkpoint.manifest import Manifest, StoredLeaf
from allranks.checkpoint.match import LeafDifference, find_differences, report_differences


def array(path: str, shape: tuple[int, ...] = (4, 4), dtype: str = "float32", kind: str = "") -> DeclaredArray:
    return DeclaredArray(path, shape, dtype, RankSplit((1,) * len(shape), ((0,),)), kind)


def saved(*arrays: DeclaredArray, **values: Any) -> Manifest:
    """A checkpoint of these arrays and values."""
    leaves = {one.path: StoredLeaf(one.shape, one.dtype, one.kind, ()) for one in arrays}
    return Manifest(7, "0" * 32, "2025-01-01T00:00:00Z", 1, "xxh3-128", (), leaves, values, None, {}, {})


def test_a_template_that_fits_has_no_differences() -> None:
    """Values may differ, in their order too; None goes with any type."""
    here = [array("w"), array("rng", (2,), "uint32", "key<fry>")]
    there = saved(*reversed(here), step=3, name=None, lr=0.5)
    assert find_differences(here, {"lr": 0.1, "step": 9, "name": "a"}, there) == ()
    assert find_differences(here, {"lr": None, "step": 9, "name": "a"}, there) == ()


def test_every_kind_of_difference_is_found_at_once() -> None:
    """Shape and dtype of one leaf are two; a key is not its bits; True is not 1, and 1 is not 1.0."""
    here = [array("new", (9,)), array("b", (4,)), array("rng", (2,), "uint32", "key<fry>"), array("v")]
    there = saved(array("old"), array("b", (5,), "bfloat16"), array("rng", (2,), "uint32"), v=3, s="x", t=1, f=1.0, u=0)
    assert find_differences(here, {"s": 2, "t": True, "f": 1, "z": 0}, there) == (
        LeafDifference("missing", "new", "float32[9]", ""),
        LeafDifference("missing", "z", "value of type int", ""),
        LeafDifference("unexpected", "old", "", "float32[4, 4]"),
        LeafDifference("unexpected", "u", "", "value of type int"),
        LeafDifference("reshaped", "b", "[4]", "[5]"),
        LeafDifference("recast", "b", "float32", "bfloat16"),
        LeafDifference("recast", "rng", "key<fry> in uint32", "uint32"),
        LeafDifference("array or value", "v", "float32[4, 4]", "value of type int"),
        LeafDifference("recast", "s", "value of type int", "value of type str"),
        LeafDifference("recast", "t", "value of type bool", "value of type int"),
        LeafDifference("recast", "f", "value of type int", "value of type float"),
    )


def test_a_common_prefix_is_told_in_one_line() -> None:
    """In either direction, and a suffix, and one for another; the pairs are in the differences."""
    names = [f"layers.{i}.{part}" for i in range(70) for part in ("weight", "bias")]
    for here, there, says in (
        ("", "model.", "all 140 missing leaves differ by the prefix 'model.', which only the checkpoint has"),
        ("module.", "", "all 140 missing leaves differ by the prefix 'module.', which only the template has"),
        ("a.", "b.", "all 140 missing leaves differ by the prefix: 'b' in the checkpoint, 'a' in the template"),
    ):
        template, manifest = [array(here + name) for name in names], saved(*[array(there + name) for name in names])
        found = find_differences(template, {}, manifest)
        assert says in report_differences(found, template, manifest)
        assert [one.meant for one in found if one.kind == "missing"] == [there + name for name in names]
    template, manifest = [array(name + "/value") for name in names], saved(*map(array, names))
    found = find_differences(template, {}, manifest)
    assert "by the suffix '/value', which only the template has" in report_differences(found, template, manifest)


def test_a_rename_is_guessed_only_where_shape_and_dtype_agree() -> None:
    """And no leaf is offered twice."""
    here = [array("attn/query"), array("attn/quer"), array("mlp/up", (3, 3))]
    there = saved(array("attn/queri"), array("mlp/upp", (3, 4)))
    meant = {one.path: one.meant for one in find_differences(here, {}, there)}
    assert sorted([meant["attn/query"], meant["attn/quer"]]) == ["", "attn/queri"]
    assert meant["mlp/up"] == meant["mlp/upp"] == ""


def test_a_long_list_is_shortened_but_counted() -> None:
    """The message shows 20 of a kind and how many there are; what fits is told in numbers."""
    here = [array(f"{i}") for i in range(50)] + [array("same", (10,), "float64")]
    there = saved(*[array(f"{i}", (2, 8)) for i in range(50)], here[-1])
    found = find_differences(here, {}, there)
    text = report_differences(found, here, there)
    assert (len(found), text.count("[2, 8] in the checkpoint, [4, 4] here")) == (50, 20)
    assert "different shape (50):" in text
    assert "... and 30 more" in text
    assert "1 of the template's 51 arrays (10 of 810 elements, 80 of 3,280 bytes)" in text
