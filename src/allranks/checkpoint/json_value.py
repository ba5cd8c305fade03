"""Convert values to standard JSON and back: floats that are not finite become ``{"float": "nan"}``.

``unpack_json`` returns the value that was packed, with tuples as lists. A user's own dict with the single key ``float``
or ``dict`` is written as ``{"dict": {...}}``, so it is never mistaken for a packed value.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from allranks.errors import NotJsonable

DEEPEST = 100
# Bits: Python neither writes nor reads an int of more than 4,300 digits.
_LONGEST_INT = 14_000
_NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
# An escape of half of a pair; it may be followed by the other half.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_OURS = ("float", "dict")


def parse_json(data: bytes) -> Any:
    """Return the JSON value in the bytes of an untrusted file.

    Raises ValueError, also for a key that occurs twice, for text that is not Unicode, and for a value that is nested
    too deeply.
    """
    text = data.decode()
    try:
        found = json.loads(text, object_pairs_hook=_object_with_unique_keys)
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("it contains half of a surrogate pair") from None
    return found


def _object_with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def pack_json(value: Any, *, value_name: str, depth: int = 0) -> Any:
    """Return the value as standard JSON. ``value_name``: its name in errors.

    Raises NotJsonable, which names the part of the value that JSON cannot hold.
    """
    kind = type(value)
    if value is None or kind is bool or (kind is int and value.bit_length() <= _LONGEST_INT):
        return value
    if kind is str:
        return _checked_text(value, value_name)
    if kind is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if depth >= DEEPEST:
        raise NotJsonable(
            f"{value_name} is nested too deeply: expected at most {DEEPEST} levels of lists and dicts.",
            remedy="Flatten it.",
        )
    if kind is list or kind is tuple:
        return [pack_json(item, value_name=f"{value_name}[{i}]", depth=depth + 1) for i, item in enumerate(value)]
    if kind is dict:
        packed = {
            _checked_key(key, value_name): pack_json(item, value_name=f"{value_name}[{key!r}]", depth=depth + 1)
            for key, item in value.items()
        }
        return {"dict": packed} if _is_escape(packed) else packed
    raise NotJsonable(
        f"{value_name} is a {kind.__module__}.{kind.__qualname__}; expected an array, None, bool, int (of at most "
        f"{_LONGEST_INT} bits), float, str, list, tuple, or dict with str keys.",
        remedy="Convert the value first: .item() for a scalar, .tolist() for a small array.",
    )


def unpack_json(value: Any, *, depth: int = 0) -> Any:
    """Return the value that was passed to ``pack_json`` (tuples as lists). Raises ValueError if it is not packed."""
    kind = type(value)
    if kind is float and not math.isfinite(value):
        raise ValueError("a number is too large for a float")
    if depth >= DEEPEST and kind in (list, dict):
        raise ValueError(f"nested more than {DEEPEST} deep")
    if kind is list:
        return [unpack_json(item, depth=depth + 1) for item in value]
    if kind is not dict:
        return value
    if not _is_escape(value):
        return {key: unpack_json(item, depth=depth + 1) for key, item in value.items()}
    [(key, inner)] = value.items()
    if key == "float" and type(inner) is str and inner in _NAMES:
        return _NAMES[inner]
    if key == "dict" and type(inner) is dict and _is_escape(inner):
        return {key: unpack_json(item, depth=depth + 1) for key, item in inner.items()}
    raise ValueError(f"an object with the single key {key!r} has no known meaning")


def _is_escape(value: dict[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)) in _OURS


def _checked_text(value: str, what: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise NotJsonable(f"{what} is {value!r}, which is not Unicode text ({error.reason}).") from None
    return value


def _checked_key(key: object, what: str) -> str:
    if type(key) is str:
        return _checked_text(key, f"a key of {what}")
    raise NotJsonable(
        f"{what} has the key {key!r}: expected a str (JSON would convert {key!r} without notice).",
        remedy="Use str keys, or a list of pairs.",
    )
