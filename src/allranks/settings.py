"""Read the values of a table in pyproject.toml (``[tool.allranks.check]``), and refuse what it cannot hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from allranks.errors import AllranksError


class ConfigWrong(AllranksError):
    """Raised for an option or value, in pyproject.toml or on the command line, that is unknown or not accepted."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The options that one table of pyproject.toml may have.

    - ``table``: its name (``tool.allranks.check``). ``names``: its options, as they are written in the file.
    - ``borrowed``: names that other tools use, and the option that is meant.
    """

    table: str
    names: Sequence[str]
    borrowed: Mapping[str, str] = field(default_factory=dict)

    def items(self, table: object, where: str) -> list[tuple[str, Any]]:
        """Return the options in a table of the file ``where``.

        Raises ConfigWrong for an unknown option, and for a value that is not a table.
        """
        if not isinstance(table, Mapping):
            raise ConfigWrong(f"{where}: [{self.table}] is not a table")
        for key in table:
            if key not in self.names:
                raise ConfigWrong(f"{where}: [{self.table}] has no option {key!r}.", remedy=self.suggestion(str(key)))
        return list(table.items())

    def suggestion(self, key: str) -> str:
        """Return a sentence that names the option that is probably meant, or all options."""
        if key in self.borrowed:
            return f"Is {self.borrowed[key]!r} meant?"
        near = get_close_matches(key.replace("_", "-"), self.names, n=1)
        return f"Is {near[0]!r} meant?" if near else f"There are: {', '.join(sorted(self.names))}."


def choice(key: str, value: object, choices: Sequence[str], where: str) -> str:
    """Return a value that must be one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise ConfigWrong(f"{where}: {key} must be one of {', '.join(choices)}, not {value!r}")
    return value


def path(key: str, value: object, where: str) -> str:
    """Return a value that must be a path."""
    if not isinstance(value, str):
        raise ConfigWrong(f"{where}: {key} must be a path, not {value!r}")
    return value


def texts(key: str, value: object, where: str) -> tuple[str, ...]:
    """Return a value that must be a list of texts."""
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise ConfigWrong(f"{where}: {key} must be a list of texts, not {value!r}")
    return tuple(value)


def integer(key: str, value: object, where: str, *, least: int) -> int:
    """Return a value that must be a whole number of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigWrong(f"{where}: {key} must be a whole number of at least {least}, not {value!r}")
    return value


def seconds(key: str, value: object, where: str) -> float:
    """Return a value that must be a number of seconds above 0."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise ConfigWrong(f"{where}: {key} must be a number of seconds above 0, not {value!r}")
    return float(value)
