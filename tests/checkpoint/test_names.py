"""Names of files, names of templates, and what turns the one into the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.checkpoint.names import (
    choose_key,
    first_matching_glob,
    make_renamer,
    map_names,
    names_below_key,
    unused_renames,
)
from allranks.errors import AllranksError

words = st.text("abc0_", min_size=1, max_size=4)
paths = st.lists(words, min_size=1, max_size=4).map(".".join)


def test_slashes_and_dots_are_one_separator() -> None:
    """Flat formats write dots where a tree has levels."""
    assert map_names(["params/dense/kernel"], None) == {"params.dense.kernel": "params/dense/kernel"}
    assert first_matching_glob("decoder/elevation_alpha", ["*.elevation_alpha"]) == "*.elevation_alpha"
    assert first_matching_glob("decoder/bias", ["*.elevation_alpha"]) == ""


@pytest.mark.parametrize(
    ("rename", "name", "becomes"),
    [
        ({"model.*": "*"}, "model.fc.weight", "fc.weight"),
        ({"model.*": "*", "*.fc1.*": "*.0.*"}, "model.h.fc1.weight", "h.0.weight"),
        ({"a": "b", "b": "a"}, "a", "b"),
        ({"a.*": "b.*", "a.w": "c"}, "a.w", "c"),
        ({"*": "module.*"}, "w", "module.w"),
        ({"x/*/y": "y.*"}, "x.1.2.y", "y.1.2"),
        ({"w+": "v"}, "ww", "ww"),
        (lambda name: name.upper(), "a/b", "A.B"),
    ],
)
def test_a_rename_says_what_a_name_of_the_file_is_here(rename: object, name: str, becomes: str) -> None:
    """Exact names are first and final, patterns follow each other, and only ``*`` is special."""
    assert make_renamer(rename)(name) == becomes  # type: ignore[arg-type]


def test_a_rename_that_cannot_be_meant_is_refused() -> None:
    with pytest.raises(AllranksError, match=r"the pattern has 1 '\*', and its result has 0"):
        make_renamer({"a.*": "b"})
    for odd in ([("a", "b")], {"a": None}, 5):
        with pytest.raises(AllranksError, match="expected a mapping of names, or a function"):
            make_renamer(odd)  # type: ignore[arg-type]
    with pytest.raises(AllranksError, match=r"rename\('a'\) returned None: expected a name"):
        make_renamer(lambda _: None)("a")  # type: ignore[arg-type, return-value]
    assert unused_renames(["model.w"], {"model.*": "*", "modle.*": "*", "v": "w"}) == ["modle.*", "v"]
    with pytest.raises(AllranksError, match=r"'a\.w' and 'b\.w' of the file both become 'b\.w'"):
        map_names(["a.w", "b.w"], {"a.*": "b.*"})


@given(st.sets(paths, min_size=1), words)
def test_a_prefix_that_is_put_on_and_taken_off_leaves_the_name(names: set[str], prefix: str) -> None:
    there, back = make_renamer({"*": f"{prefix}.*"}), make_renamer({f"{prefix}.*": "*"})
    assert {back(there(name)) for name in names} == names


def test_the_weights_are_found_below_a_known_key() -> None:
    """The one of which most names are the template's; the top, where that has as many."""
    lightning = ["state_dict/model.w", "optimizer_states/0/state/0/exp_avg"]
    assert choose_key(lightning, ["w"], None) == "state_dict"
    assert choose_key(["model/w", "optimizer/w"], ["model/w", "optimizer/w"], None) == ""
    assert choose_key(["model/w", "state_dict/v"], ["w"], None) == "model"
    assert choose_key(["w", "model/v"], ["x"], None) == ""
    assert choose_key(["params/a/w"], ["params/a/w"], None) == ""
    assert choose_key(["ema/w", "model/w"], ["w"], "ema") == "ema"
    with pytest.raises(
        AllranksError, match="no array of the file is below key='emma': expected one of the keys ema, model"
    ):
        choose_key(["ema/w", "model/w"], ["w"], "emma")
    assert names_below_key(["ema/w", "model/w", "modelx"], "model") == {"w": "model/w"}
    assert names_below_key(["ema.net.w", "model.w"], "ema/net") == {"w": "ema.net.w"}
