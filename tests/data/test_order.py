"""Permutations and random numbers that no version and no machine changes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allranks.data import order

GOLDEN_KEY = 317638020053339525028259432495408432696
GOLDEN_ORDER = [7, 11, 5, 6, 1, 2, 0, 8, 10, 4, 3, 9]
GOLDEN_NUMBERS = [431, 559, 253, 365]


def test_orders_are_those_of_the_first_release():
    """A changed order would change what every running job has read: these numbers must never change."""
    assert order.make_key("allranks", 1, "blocks") == GOLDEN_KEY
    assert order.permutation(GOLDEN_KEY, 12).tolist() == GOLDEN_ORDER
    assert order.generator(GOLDEN_KEY).integers(0, 1000, 4).tolist() == GOLDEN_NUMBERS


@given(st.integers(0, (1 << 128) - 1), st.integers(0, 500))
def test_every_number_once(key, count):
    """A permutation has each number once."""
    assert sorted(order.permutation(key, count).tolist()) == list(range(count))


def test_keys_of_other_words_have_nothing_in_common():
    """Seed 0 in epoch 1 is not seed 1 in epoch 0; 1 and "1" are two words."""
    assert order.make_key(0, 1) != order.make_key(1, 0)
    assert order.make_key(1) != order.make_key("1")
    assert order.make_key("a", "b") != order.make_key("astr:1:b")


def test_numbers_follow_from_the_key():
    """A generator of one key gives the same numbers again; that of another key others."""
    one, again, other = (order.generator(order.make_key("x", n)).random(8) for n in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
