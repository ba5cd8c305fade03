"""Did you mean: renames that are offered make leaves of one shape fit, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.checkpoint.names import make_renamer
from allranks.loading.rename_suggestions import suggest_rename

FEED = [f"blocks.{i}.mlp.{child}.{leaf}" for i in range(3) for child in ("0", "2") for leaf in ("weight", "bias")]


def shape(name: str) -> tuple[int, ...]:
    first = ".0.w" in name or ".fc1.w" in name or ".0.b" in name or ".fc1.b" in name
    return (16, 4)[: 2 if "weight" in name else 1] if first else (4, 16)[: 2 if "weight" in name else 1]


def old(name: str) -> str:
    return name.replace("mlp.0", "mlp.fc1").replace("mlp.2", "mlp.fc2")


LAYERS = {"*.fc1.*": "*.0.*", "*.fc2.*": "*.2.*"}


@pytest.mark.parametrize(
    ("missing", "unexpected", "offered"),
    [
        (FEED, [f"model.{name}" for name in FEED], {"model.*": "*"}),
        (FEED, [f"module.model.{name}" for name in FEED], {"module.model.*": "*"}),
        ([f"module.{name}" for name in FEED], FEED, {"*": "module.*"}),
        (FEED, [old(name) for name in FEED], LAYERS),
        (FEED, [f"model._orig_mod.{old(name)}" for name in FEED], {"model._orig_mod.*": "*", **LAYERS}),
        (
            [f"{side}.{name}" for side in ("encoder", "decoder") for name in FEED],
            [f"{side}._orig_mod.{name}" for side in ("encoder", "decoder") for name in FEED],
            {"*._orig_mod.*": "*.*"},
        ),
        (["0.weight", "2.weight"], ["fc1.weight", "fc2.weight"], {"fc1.*": "0.*", "fc2.*": "2.*"}),
        (["attn/query"], ["attn/queri"], {"attn.queri": "attn.query"}),
        (
            [f"encoder.layer.{i}.q.weight" for i in range(4)],
            [f"bert.layers.{i}.query.weight" for i in range(4)],
            {"bert.layers.*": "encoder.layer.*", "*.query.*": "*.q.*"},
        ),
    ],
)
def test_what_people_meet_is_explained(missing: list[str], unexpected: list[str], offered: dict[str, str]) -> None:
    """Wrappers' prefixes, renamed layers by their order, misspelt names: as few patterns as there are changes."""
    assert (
        suggest_rename({name: shape(name) for name in missing}, {name: shape(name) for name in unexpected}) == offered
    )


def test_equal_shapes_go_in_order_and_others_by_shape() -> None:
    """Two layers of one shape: the first is the first. Two of different shapes: the shape says which."""
    same, other = (4, 4), (4, 2)
    assert suggest_rename({"a.w": same, "b.w": same}, {"y.w": same, "x.w": same}) == {"y.*": "a.*", "x.*": "b.*"}
    assert suggest_rename({"a.w": same, "b.w": other}, {"y.w": other, "x.w": same}) == {"y.*": "b.*", "x.*": "a.*"}


@pytest.mark.parametrize(
    ("missing", "unexpected"),
    [({"x": (3,)}, {"totally": (4,)}), ({"head.w": (3,)}, {"model.other": (4,)}), ({}, {"a": (1,)}), ({"a": (1,)}, {})],
)
def test_where_no_shape_fits_nothing_is_offered(
    missing: dict[str, tuple[int, ...]], unexpected: dict[str, tuple[int, ...]]
) -> None:
    assert suggest_rename(missing, unexpected) == {}


names = st.lists(st.sampled_from(["a", "b", "fc1", "model", "0", "module", "w"]), min_size=1, max_size=4).map(".".join)
sides = st.dictionaries(names, st.sampled_from([(2,), (3,), (2, 3)]), max_size=8)


@given(sides, sides, st.sets(names, max_size=4))
def test_an_offer_helps_and_harms_nothing(
    wanted: dict[str, tuple[int, ...]], there: dict[str, tuple[int, ...]], fitting: set[str]
) -> None:
    """Of whatever names: at least one leaf more fits, no two become one, and what fitted stays where it is."""
    missing = {name: shape for name, shape in wanted.items() if name not in there and name not in fitting}
    unexpected = {name: shape for name, shape in there.items() if name not in wanted and name not in fitting}
    offered = suggest_rename(missing, unexpected, fitting)
    if not offered:
        return
    change = make_renamer(offered)
    new = [change(name) for name in unexpected]
    assert any(missing.get(change(name)) == shape for name, shape in unexpected.items()), offered
    assert len(set(new)) == len(new)
    assert not set(new) & fitting
    assert all(change(name) == name for name in fitting)
