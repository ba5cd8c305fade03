"""The pickle machine reads what Python's unpickler reads, and makes nothing else: no object, no call, no import."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import Any

import pytest

from allranks.loading.formats import unpickle
from allranks.loading.formats.pickle_machine import InertObject

PLAIN: list[Any] = [
    *(None, True, False, 0, 255, 70_000, -5, 1 << 40, -(1 << 40), 1 << 3000, 1.5, -0.0, float("inf")),
    *("x" * 300, "é\nr\r\\", "'quoted\"", "y" * 70_000, ""),
    *((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], {}, {"a": [1]}, {1: 2, None: 3, ("a", 4): 5, 1.5: 6}),
    *(OrderedDict(a=1, b=[2]), OrderedDict()),
]


def equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_read_as_python_reads_them(protocol: int) -> None:
    """Of every kind, in every protocol, with parts that occur twice and with many texts."""
    value = [*PLAIN, PLAIN[-4:], [f"text {n}" for n in range(400)]]
    assert equal(unpickle.unpickle_inertly(pickle.dumps(value, protocol)), value)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_other_objects_are_inert(protocol: int) -> None:
    """Sets, exceptions and functions remember their name. Bytes stay bytes in the protocols that have them."""
    found = unpickle.unpickle_inertly(pickle.dumps([{3}, Exception("an object"), pickle.dumps, b"x"], protocol))
    assert [type(one) for one in found[:3]] == [InertObject] * 3
    assert [one.named.rpartition(".")[2] for one in found[:3]] == ["set", "Exception", "dumps"]
    assert found[3] == b"x" or found[3].named == "_codecs.encode"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x80\x02}(Nq\x00h\x00h\x00\x86\x86Nu.", "byte 14: a key of a dict is a tuple of 2 parts"),
        (b"\x80\x02}(]Nu.", "a key of a dict is a list"),
        (b"\x80\x02)b.", "BUILD uses an object that does not exist"),
        (b"\x80\x02h\x05.", "byte 2: BINGET uses an object that does not exist"),
        (b"\x80\x02\x97.", "the operation NEXT_BUFFER is no operation of a checkpoint"),
        (b"\x80\x02\xff.", "0xff is no operation"),
        (b"\x80\x09.", "protocol 9"),
        (b"\x80\x02\x8b\x00\x10\x00\x00" + b"\x7f" * 4096 + b".", "a number has 4,096 bytes: expected at most 1,750"),
        (b"\x80\x02K\x01K\x02K\x03s.", "sets items of a int: expected a dict"),
        (b"\x80\x02K\x01Nb.", "changes a int after it was made"),
        (b"\x80\x02NNR.", "the arguments of a call are a NoneType"),
        (b"\x80\x02N", "ends without STOP"),
        (b".", "byte 0: STOP uses an object that does not exist"),
    ],
)
def test_a_fault_names_its_byte(data: bytes, says: str) -> None:
    with pytest.raises(pickle.UnpicklingError, match=says):
        unpickle.unpickle_inertly(data)


def test_a_longer_pickle_needs_a_higher_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of operations has a limit, which a user can raise; the message says how."""
    data = pickle.dumps(list(range(1000)))
    monkeypatch.setenv("ALLRANKS_METADATA_LIMIT", "4096")
    with pytest.raises(pickle.UnpicklingError, match=r"more than 512 operations. .*set ALLRANKS_METADATA_LIMIT"):
        unpickle.unpickle_inertly(data)
    monkeypatch.setenv("ALLRANKS_METADATA_LIMIT", "1MiB")
    assert unpickle.unpickle_inertly(data) == list(range(1000))
