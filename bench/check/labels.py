"""The labels and the known-good code as values; what was judged of single findings. Data lies in the .toml files."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

HERE = Path(__file__).parent
Split: TypeAlias = Literal["dev", "held-out"]
SPLITS: tuple[Split, ...] = ("dev", "held-out")


def split(repository: str) -> Split:
    """Return the half of a repository. Its name's digest decides: nobody chose, and no repository moves."""
    return "held-out" if hashlib.sha256(repository.lower().encode()).digest()[0] % 2 else "dev"


@dataclass(frozen=True, slots=True)
class Label:
    """One real bug. ``commit`` is the last one that has it; ``codes`` are those that name it, the best first.

    A finding hits at ``path:line`` or at one of ``also`` (``path:line`` too): where the call and the write are apart.
    """

    id: str
    repository: str
    commit: str
    path: str
    line: int
    codes: tuple[str, ...]
    framework: str
    why: str
    evidence: str
    also: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[tuple[str, int], ...]:
        others = (place.rpartition(":") for place in self.also)
        return ((self.path, self.line), *((path, int(line)) for path, _, line in others))


@dataclass(frozen=True, slots=True)
class Good:
    """Well-kept code: the Python files of ``paths`` (folders or files; "" is all), without those below ``without``."""

    repository: str
    commit: str
    paths: tuple[str, ...]
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a person who read the code says of the findings with one fingerprint."""

    real: bool
    why: str


Fingerprint: TypeAlias = tuple[str, str, str, str]  # repository, code, path, symbol


def labels() -> tuple[Label, ...]:
    return tuple(Label(**_tuples(entry)) for entry in _read("labels.toml", "label"))


def good() -> tuple[Good, ...]:
    return tuple(Good(**_tuples(entry)) for entry in _read("good.toml", "good"))


def judgements() -> Mapping[Fingerprint, Judgement]:
    entries = _read("judgements.toml", "judgement")
    return {(e["repository"], e["code"], e["path"], e["symbol"]): Judgement(e["real"], e["why"]) for e in entries}


def _read(name: str, key: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = tomllib.loads((HERE / name).read_text()).get(key, [])
    return entries


def _tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
