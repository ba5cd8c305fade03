"""The operations of a pickle are found where Python finds them: or a number in one could hide from the check."""

from __future__ import annotations

import pickle
import pickletools
from collections import OrderedDict
from typing import Any

import pytest

from allranks.loading.formats import unpickle

VALUES: list[Any] = [
    *(None, True, 0, 255, 70_000, -5, 1 << 40, 1 << 3000, 1.5),
    *("x" * 300, "é\nr\xff", b"p9999999\n", b"y" * 300, bytearray(3)),
    *((1,), (1, 2, 3, 4), {"a": [1]}, {3}, frozenset({4}), OrderedDict(a=1), Exception("an object")),
]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_operations_end_where_python_ends_them(protocol: int) -> None:
    """Of every kind of value, in every protocol, by text and by length."""
    data = pickle.dumps([*VALUES, VALUES[:3], *(f"text {n}" for n in range(400))], protocol)
    expected = [at for _, _, at in pickletools.genops(data)]
    found = [0]
    while data[found[-1]] != ord("."):
        found.append(unpickle._end_of_operation(data, found[-1]))
    assert found == expected
