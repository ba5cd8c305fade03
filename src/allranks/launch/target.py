"""What a rank runs: a script, a module, a function, or any command."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args


@dataclass(frozen=True, slots=True)
class Script:
    """``python path arguments...``"""

    path: str
    arguments: tuple[str, ...] = ()

    def argv(self, python: str) -> tuple[str, ...]:
        return (python, self.path, *self.arguments)


@dataclass(frozen=True, slots=True)
class Module:
    """``python -m name arguments...``"""

    name: str
    arguments: tuple[str, ...] = ()

    def argv(self, python: str) -> tuple[str, ...]:
        return (python, "-m", self.name, *self.arguments)


@dataclass(frozen=True, slots=True)
class Call:
    """The function ``"package.module:name"``, called with the arguments in a JSON list. What it returns is dropped."""

    function: str
    arguments: str = "[]"

    def argv(self, python: str) -> tuple[str, ...]:
        return (python, "-c", CALL, self.function, self.arguments)


@dataclass(frozen=True, slots=True)
class Command:
    """Any command; its first word is looked up in PATH."""

    words: tuple[str, ...]

    def argv(self, python: str) -> tuple[str, ...]:  # noqa: ARG002 - the same face as the others
        return self.words


Target = Script | Module | Call | Command
KINDS: dict[str, Callable[..., Target]] = {kind.__name__: kind for kind in get_args(Target)}
CALL = """\
import importlib, json, sys
module, name = sys.argv[1].split(":")
getattr(importlib.import_module(module), name)(*json.loads(sys.argv[2]))
"""


def to_json(target: Target) -> str:
    """Return a target as one line of JSON."""
    return json.dumps({"kind": type(target).__name__, **asdict(target)})


def from_json(text: str) -> Target:
    """Return the target that ``to_json`` wrote."""
    fields: dict[str, Any] = json.loads(text)
    kind = KINDS[fields.pop("kind")]
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})


def target_of(words: Sequence[str], *, pythons: Sequence[str]) -> Target:
    """Read a command line: ``train.py ...`` and ``python train.py ...`` are scripts, ``python -m x`` is a module.

    ``pythons`` are the words that name the interpreter that runs us. A command with options for the interpreter itself
    (``python -O train.py``) stays a plain command.
    """
    first, *rest = words
    if first.endswith(".py"):
        return Script(first, tuple(rest))
    if first in pythons and len(rest) >= 2 and rest[0] == "-m":
        return Module(rest[1], tuple(rest[2:]))
    if first in pythons and rest and rest[0].endswith(".py"):
        return Script(rest[0], tuple(rest[1:]))
    return Command(tuple(words))
