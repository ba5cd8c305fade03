"""``[tool.allranks.check]``: what may stand there, and what is wrong with what does. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from allranks import settings
from allranks.settings import ConfigWrong as ConfigWrong

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


SCHEMA = settings.Schema("tool.allranks.check", NAMES, _BORROWED)


def read(table: object, where: str) -> Config:
    """Return the options of a TOML table. Raises ConfigWrong, naming ``where``, for an unknown key or a wrong value."""
    return Config(**{key.replace("-", "_"): _value(key, value, where) for key, value in SCHEMA.items(table, where)})


def _value(key: str, value: object, where: str) -> Any:
    if key == "per-file-ignores":
        return _per_file(value, where)
    if key == "respect-gitignore":
        return _must(isinstance(value, bool), value, f"{where}: {key} must be true or false, not {value!r}")
    if key in CHOICES:
        return settings.choice(key, value, CHOICES[key], where)
    if key == "precision":
        good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
        return _must(good, value, f"{where}: precision must be a number from 0 to 1, not {value!r}")
    if key in ("baseline", "cache-dir"):
        return settings.path(key, value, where)
    return settings.texts(key, value, where)


def _per_file(value: object, where: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, Mapping):
        raise ConfigWrong(f'{where}: per-file-ignores must be a table such as {{"tests/**" = ["AR1"]}}, not {value!r}')
    return tuple((glob, settings.texts(f"per-file-ignores.{glob}", codes, where)) for glob, codes in value.items())


def _must(good: bool, value: object, message: str) -> object:
    if not good:
        raise ConfigWrong(message)
    return value
