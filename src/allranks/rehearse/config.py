"""Read ``[tool.allranks.rehearse]``: the command to rehearse, the options, and the findings that are allowed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatch
from typing import Any

from allranks import settings
from allranks.findings import Finding
from allranks.rehearse.scenario import DEFAULT, NAMES, Name
from allranks.settings import ConfigWrong


@dataclass(frozen=True, slots=True)
class Allowed:
    """Findings that a project accepts: those of a rule in the files of a glob. ``reason`` says why."""

    code: str
    path: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Return whether this entry accepts a finding."""
        return finding.code == self.code and fnmatch(finding.place.path, self.path)


@dataclass(frozen=True, slots=True)
class Config:
    """The options of a rehearsal. The fields are documented in docs/rehearse.md."""

    command: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    resume_arguments: tuple[str, ...] = ()
    ranks: int | None = None
    devices: int | None = None
    steps: int = 20
    hosts: int = 2
    seeds: int = 3
    budget: float = 120.0
    only: tuple[Name, ...] = DEFAULT
    local_paths: tuple[str, ...] = ()
    shared_paths: tuple[str, ...] = ()
    allow: tuple[Allowed, ...] = ()
    baseline: str = ""
    output_format: str = "full"
    accelerator: str = ""

    def with_(self, **given: Any) -> Config:
        """Return the options with those of the command line; None means that it does not say."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


# The values of --accelerator: the CPU runs programs that ask for CUDA, or nothing does.
ACCELERATORS = ("cpu", "none")
_BORROWED = {
    "args": "arguments",
    "script": "command",
    "nproc": "ranks",
    "nproc-per-node": "ranks",
    "scenarios": "only",
    "ignore": "allow",
    "timeout": "budget",
}
_NAMES = tuple(one.name.replace("_", "-") for one in fields(Config))
SCHEMA = settings.Schema("tool.allranks.rehearse", _NAMES, _BORROWED)
# The smallest value of each whole number.
_LEAST = {"ranks": 1, "devices": 1, "hosts": 1, "seeds": 1, "steps": 0}


def read(table: object, where: str, forms: tuple[str, ...]) -> Config:
    """Return the options of a TOML table; ``forms`` are the formats of a report.

    Raises ConfigWrong, naming the file ``where``, for an unknown key or a wrong value.
    """
    items = SCHEMA.items(table, where)
    return Config(**{key.replace("-", "_"): _value(key, value, where, forms) for key, value in items})


def _value(key: str, value: object, where: str, forms: tuple[str, ...]) -> Any:
    if key in _LEAST:
        return settings.integer(key, value, where, least=_LEAST[key])
    if key == "budget":
        return settings.seconds(key, value, where)
    if key == "output-format":
        return settings.choice(key, value, forms, where)
    if key == "accelerator":
        return settings.choice(key, value, ACCELERATORS, where)
    if key == "baseline":
        return settings.path(key, value, where)
    if key == "allow":
        return _allow(value, where)
    if key == "only":
        names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
        return tuple(settings.choice(key, name, NAMES, where) for name in settings.texts(key, names, where))
    if key in ("command", "arguments", "resume-arguments"):
        return _command_line(key, value, where)
    return settings.texts(key, value, where)


def _command_line(key: str, value: object, where: str) -> tuple[str, ...]:
    """Return the words of a command line, which is a list of texts or one text."""
    if not isinstance(value, str):
        return settings.texts(key, value, where)
    try:
        return tuple(shlex.split(value))
    except ValueError as error:
        raise ConfigWrong(f"{where}: {key} is no command line: {error}: {value!r}") from error


def _allow(value: object, where: str) -> tuple[Allowed, ...]:
    example = '[{code = "AR405", path = "train.py", reason = "..."}]'
    if not isinstance(value, list):
        raise ConfigWrong(f"{where}: allow must be a list such as {example}, not {value!r}")
    return tuple(_allowed(one, where, example) for one in value)


def _allowed(entry: object, where: str, example: str) -> Allowed:
    keys = ("code", "path", "reason")
    if not isinstance(entry, Mapping) or not all(isinstance(text, str) for text in entry.values()):
        raise ConfigWrong(f"{where}: allow must be a list such as {example}, not with {entry!r}")
    if unknown := [key for key in entry if key not in keys]:
        raise ConfigWrong(f"{where}: allow: there is no key {unknown[0]!r}.", remedy=f"There are: {', '.join(keys)}.")
    if missing := [key for key in ("code", "reason") if not entry.get(key, "").strip()]:
        raise ConfigWrong(f"{where}: allow: the entry {dict(entry)!r} has no {missing[0]}.", remedy=f"Write {example}.")
    return Allowed(entry["code"].upper(), entry.get("path", "*"), entry["reason"])
