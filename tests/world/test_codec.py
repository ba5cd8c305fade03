"""What travels between ranks comes out as it went in, or is refused by name."""

from __future__ import annotations

import enum
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.errors import NotJsonable
from allranks.world.codec import dumps, loads, pack, unpack

KEYS = st.text().filter(lambda key: key != "__bytes__")
# Lone surrogates too: file names that are no UTF-8 have them.
TEXT = st.text(st.characters(exclude_categories=()))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=20,
)


class Colour(enum.IntEnum):
    RED = 1


class Ratio(float):
    pass


def there_and_back(value: Any) -> Any:
    return unpack(loads(dumps(pack(value))))


@given(VALUES)
@settings(deadline=None)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    """Types, order of keys, the sign of zero and NaN included: so ``repr`` is the comparison."""
    assert repr(there_and_back(value)) == repr(value)


@given(st.lists(VALUES, max_size=3))
@settings(deadline=None)
def test_a_tuple_comes_back_as_a_list(values: list[Any]) -> None:
    assert repr(there_and_back({"a": (tuple(values), 1)})) == repr({"a": [values, 1]})


@given(VALUES)
@settings(deadline=None)
def test_what_travels_is_json(value: Any) -> None:
    """Never a pickle: any JSON reader can read it."""
    assert dumps(pack(value)).isascii()
    json.loads(dumps(pack(value)))


def test_numbers_that_json_has_no_word_for_travel() -> None:
    """A loss may be NaN, and a best loss starts at infinity."""
    back = there_and_back([math.nan, math.inf, -math.inf, -0.0, 2**14_000 - 1])
    assert math.isnan(back[0])
    assert back[1:3] == [math.inf, -math.inf]
    assert math.copysign(1, back[3]) == -1
    assert back[4] == 2**14_000 - 1


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({1, 2}, "value is a builtins.set: expected None, bool"),
        ([0, {"a": 1j}], r"value\[1\]\['a'\] is a builtins.complex"),
        (Colour.RED, "is a test_codec.Colour"),
        (Ratio(0.5), "is a test_codec.Ratio"),
        (bytearray(b"x"), "is a builtins.bytearray"),
        (test_numbers_that_json_has_no_word_for_travel, "is a builtins.function"),
        ({None: 1}, "value has the key None: expected a str"),
        ({"a": {True: 1}}, r"value\['a'\] has the key True"),
        ({"__bytes__": "eA=="}, "has the key '__bytes__'"),
        ([2**14_000], r"value\[0\] is an int of 14001 bits"),
    ],
)
def test_what_would_change_on_its_way_is_refused(value: Any, says: str) -> None:
    """The place is named, and what to do."""
    with pytest.raises(NotJsonable, match=says) as caught:
        pack(value)
    assert str(caught.value).endswith(".")
    assert isinstance(caught.value, TypeError)
