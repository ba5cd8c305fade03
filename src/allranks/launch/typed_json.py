"""Convert JSON that another process has sent to frozen records. Values of other types than the record's are refused."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

_LARGEST, _LARGEST_FLOAT = 1 << 63, 1e300


def parse(data: bytes) -> Any:
    """Parse JSON. Raises ValueError for what is none, for numbers that JSON does not have, and if it is too deep."""
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("the JSON is too deep") from error


def _refuse_constant(name: str) -> float:
    raise ValueError(f"expected a number, found {name}")


def typed(value: Any, hint: Any) -> Any:
    """Convert parsed JSON to a value of the type ``hint``. Raises ValueError if it is of another type.

    A number must be finite and have at most 64 bits. Unknown fields of records are ignored.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _typed_union(value, arguments)
    if origin in (tuple, frozenset) and isinstance(value, list):
        return origin(typed(one, arguments[0]) for one in value)
    if origin is Literal and value in arguments:
        return value
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, dict):
        return {typed(name, arguments[0]): typed(one, arguments[1]) for name, one in value.items()}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if isinstance(hint, type) and is_dataclass(hint) and isinstance(value, dict):
        return _record(value, hint)
    if hint in (int, float) and type(value) in {int, hint}:
        return _typed_number(value, hint)
    if type(value) is not hint:
        raise ValueError(f"expected {hint}, found {str(value)[:80]!r}")
    return value


def _typed_number(value: Any, hint: Any) -> Any:
    if not (abs(value) < _LARGEST if hint is int else abs(value) < _LARGEST_FLOAT):
        raise ValueError(f"expected a number of 64 bits, found {str(value)[:80]}")
    return hint(value)


def _typed_union(value: Any, kinds: tuple[Any, ...]) -> Any:
    if value is None and type(None) in kinds:
        return None
    records: dict[str, Any] = {kind.__name__: kind for kind in kinds if isinstance(kind, type) and is_dataclass(kind)}
    if isinstance(value, dict):
        kind = records.get(str(value.get("kind")))
        if kind is None:
            raise ValueError(f"expected one of {[*records]}, found {str(value.get('kind'))[:80]!r}")
        return _record(value, kind)
    rest = [kind for kind in kinds if kind is not type(None) and kind not in records.values()]
    if len(rest) != 1:
        raise ValueError(f"expected one of {kinds}, found {str(value)[:80]!r}")
    return typed(value, rest[0])


def _record(value: dict[str, Any], kind: Any) -> Any:
    hints = _hints(kind)
    given = {name: typed(one, hints[name]) for name, one in value.items() if name != "kind" and name in hints}
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from error


_known_hints: dict[Any, dict[str, Any]] = {}


def _hints(kind: Any) -> dict[str, Any]:
    if kind not in _known_hints:
        _known_hints[kind] = typing.get_type_hints(kind)
    return _known_hints[kind]
