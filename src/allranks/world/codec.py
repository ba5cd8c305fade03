"""Encode values that are sent between ranks: JSON values and bytes, never a pickle.

A decoded value is what JSON gives: a tuple returns as a list; NaN and the infinities are kept. A value that JSON would
change silently (a dict key that is not a string, a NumPy scalar, a set) is refused.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from allranks.errors import NotJsonable

_ALLOWED = "None, bool, int, float, str, list, tuple, dict with str keys, or bytes"
_BYTES = "__bytes__"
# Bits: Python neither writes nor reads an int of more than 4,300 digits.
_LONGEST_INT = 14_000

# JSON types and bytes, at any depth; checked when packed, so the static type says no more.
Value = Any
Json = Any


def pack(value: Value, *, what: str = "value") -> Json:
    """Return the value in JSON types, with bytes (at any depth) wrapped.

    Raises NotJsonable for any other type, and names where in the value it is. ``what`` names the value in the message.
    """
    if type(value) is int and value.bit_length() > _LONGEST_INT:
        raise NotJsonable(
            f"{what} is an int of {value.bit_length()} bits: expected at most {_LONGEST_INT}.",
            remedy="Send its bytes (int.to_bytes).",
        )
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode("ascii")}
    if isinstance(value, list | tuple):
        return [pack(item, what=f"{what}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict):
        return {_checked_key(key, what): pack(item, what=f"{what}[{key!r}]") for key, item in value.items()}
    raise NotJsonable(
        f"{what} is a {type(value).__module__}.{type(value).__qualname__}: expected {_ALLOWED}.",
        remedy="Convert it first (.item() for a scalar array, .tolist() or .tobytes() for an array, list() for a set).",
    )


def unpack(value: Json) -> Value:
    """Return the value that was given to ``pack``. Tuples are returned as lists."""
    if isinstance(value, list):
        return [unpack(item) for item in value]
    if isinstance(value, dict):
        if value.keys() == {_BYTES}:
            return base64.b64decode(str(value[_BYTES]))
        return {key: unpack(item) for key, item in value.items()}
    return value


def dumps(document: Any) -> bytes:
    """Encode a document of JSON types as bytes."""
    return json.dumps(document, separators=(",", ":")).encode()


def loads(data: bytes) -> Any:
    """Decode the bytes that ``dumps`` returned; return the document."""
    return json.loads(data)


def _checked_key(key: object, what: str) -> str:
    if isinstance(key, str) and key != _BYTES:
        return key
    raise NotJsonable(
        f"{what} has the key {key!r}: expected a str other than {_BYTES!r}; JSON would change any other type.",
        remedy="Use str keys, or a list of pairs.",
    )
