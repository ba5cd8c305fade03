"""Read the profile of an engine: a table of options, checked against the dataclass of its kind."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, field, fields
from typing import Any, TypeVar

from allranks.settings import ConfigWrong, Schema

TABLE = "tool.allranks.engines"
_NAMES = {str: "a text", int: "a whole number", bool: "true or false", float: "a number"}
T = TypeVar("T")


def option(help_text: str, default: Any = MISSING, *, choices: Sequence[str] = ()) -> Any:
    """Describe one option of a profile, as the field of a dataclass. Without a default it must be given."""
    about = {"help": help_text, "choices": tuple(choices)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=about)
    return field(default=default, metadata=about)


def read(kind: type[T], name: str, table: Mapping[str, Any], where: str, *, complete: bool = True) -> T:
    """Convert the table of the profile ``name`` in the file ``where`` to a profile of a kind.

    Raises ConfigWrong for an unknown option, a value of the wrong type, and for an option that is missing; without
    ``complete``, a text that is missing is empty.
    """
    known = {one.name.replace("_", "-"): one for one in fields(kind)}  # type: ignore[arg-type]
    types_of = typing.get_type_hints(kind)
    values = {}
    schema = Schema(f"{TABLE}.{name}", [*known, "kind"])
    for key, value in schema.items({key.replace("_", "-"): value for key, value in table.items()}, where):
        if key == "kind":
            continue
        one = known[key]
        values[one.name] = _checked(f"{where}: profile {name!r}: {key}", value, types_of[one.name])
        choices = one.metadata["choices"]
        if choices and value not in choices:
            expected = f"expected one of {', '.join(choices)}"
            raise ConfigWrong(f"{where}: profile {name!r}: {key}: {expected}, found {value!r}.")
    for key, one in known.items():
        if one.name in values or one.default is not MISSING or one.default_factory is not MISSING:
            continue
        if not complete:
            values[one.name] = ""
        else:
            raise ConfigWrong(
                f"{where}: profile {name!r}: {key} is missing: {one.metadata['help']}.",
                remedy=f'Add {key} = "..." to [{TABLE}.{name}].',
            )
    return kind(**values)


def _checked(what: str, value: Any, expected: Any) -> Any:
    """Return a value of a profile as the type of its field."""
    origin = typing.get_origin(expected)
    if origin is tuple:
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return tuple(value)
        raise ConfigWrong(f"{what}: expected a list of texts, found {value!r}.")
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        of_texts = typing.get_args(expected)[1] is str
        if isinstance(value, Mapping) and not (of_texts and any(not isinstance(one, str) for one in value.values())):
            return dict(value)
        raise ConfigWrong(f"{what}: expected a table{' of texts' if of_texts else ''}, found {value!r}.")
    if isinstance(expected, types.UnionType):
        expected = next(one for one in typing.get_args(expected) if one is not type(None))
    if expected is float and type(value) is int:
        return float(value)
    if type(value) is not expected:
        raise ConfigWrong(f"{what}: expected {_NAMES[expected]}, found {value!r}.")
    return value


def described(kind: type[Any]) -> list[tuple[str, str]]:
    """Return each option of a kind's profile with what it means and its default, for ``--help``."""
    rows = []
    for one in fields(kind):
        default = "" if one.default in (MISSING, "", None, False, ()) else f" ({one.default})"
        needed = " (must be given)" if one.default is MISSING and one.default_factory is MISSING else ""
        rows.append((one.name.replace("_", "-"), one.metadata["help"] + default + needed))
    return rows
