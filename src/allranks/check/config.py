"""``[tool.allranks.check]``: what may stand there, and what is wrong with what does. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from allranks.errors import AllranksError

CHOICES = MappingProxyType(
    {
        "assume": ("auto", "multi-host"),
        "confidence": ("high", "low"),
        "fail-on": ("error", "warning"),
        "output-format": ("full", "concise", "json", "sarif", "github", "markdown", "html"),
    }
)
# Renamed or borrowed from other tools: what a person may write first.
_BORROWED = MappingProxyType({"extend-ignore": "ignore", "entry": "entry-points", "entries": "entry-points"})


class ConfigWrong(AllranksError):
    """The configuration, or the command line, asks for what there is not."""


@dataclass(frozen=True, slots=True)
class Config:
    """All options, with their defaults. Options of the command line win, but lists that extend are added.

    ``select`` None means the rules that run by default. Names are qualified (``utils.is_chief``); paths and entries are
    globs, from the project's root.
    """

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    assume: str = "auto"
    confidence: str = "high"
    precision: float = 0.0
    entry_points: tuple[str, ...] = ()
    rank_zero_predicates: tuple[str, ...] = ()
    collectives: tuple[str, ...] = ()
    shared_paths: tuple[str, ...] = ()
    node_local_paths: tuple[str, ...] = ()
    exclude: tuple[str, ...] | None = None
    extend_exclude: tuple[str, ...] = ()
    respect_gitignore: bool = True
    fail_on: str = "warning"
    output_format: str = "full"
    baseline: str = ""
    cache_dir: str = ".allranks_cache"

    def with_(self, **given: Any) -> Config:
        """Return the options with those of the command line; None means that it does not say."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


NAMES = tuple(field.name.replace("_", "-") for field in fields(Config))


def read(table: object, where: str) -> Config:
    """Return the options of a TOML table. Raises ConfigWrong, naming ``where``, for an unknown key or a wrong value."""
    if not isinstance(table, Mapping):
        raise ConfigWrong(f"{where}: [tool.allranks.check] is not a table")
    given: dict[str, Any] = {}
    for key, value in table.items():
        if key not in NAMES:
            raise ConfigWrong(f"{where}: [tool.allranks.check] has no option {key!r}.", remedy=_meant(str(key)))
        given[key.replace("-", "_")] = _value(key, value, where)
    return Config(**given)


def _meant(key: str) -> str:
    near = [_BORROWED[key]] if key in _BORROWED else get_close_matches(key.replace("_", "-"), NAMES, n=1)
    return f"Is {near[0]!r} meant?" if near else f"There are: {', '.join(sorted(NAMES))}."


def _value(key: str, value: object, where: str) -> object:
    if key == "per-file-ignores":
        return _per_file(value, where)
    if key == "respect-gitignore":
        return _must(isinstance(value, bool), value, f"{where}: {key} must be true or false, not {value!r}")
    if key in CHOICES:
        return _must(
            value in CHOICES[key], value, f"{where}: {key} must be one of {', '.join(CHOICES[key])}, not {value!r}"
        )
    if key == "precision":
        good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
        return _must(good, value, f"{where}: precision must be a number from 0 to 1, not {value!r}")
    if key in ("baseline", "cache-dir"):
        return _must(isinstance(value, str), value, f"{where}: {key} must be a path, not {value!r}")
    return _words(key, value, where)


def _words(key: str, value: object, where: str) -> tuple[str, ...]:
    good = isinstance(value, list) and all(isinstance(word, str) for word in value)
    _must(good, value, f"{where}: {key} must be a list of texts, not {value!r}")
    return tuple(value) if isinstance(value, list) else ()


def _per_file(value: object, where: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, Mapping):
        raise ConfigWrong(f'{where}: per-file-ignores must be a table such as {{"tests/**" = ["AR1"]}}, not {value!r}')
    return tuple((glob, _words(f"per-file-ignores.{glob}", codes, where)) for glob, codes in value.items())


def _must(good: bool, value: object, message: str) -> object:
    if not good:
        raise ConfigWrong(message)
    return value
