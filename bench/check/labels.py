"""The labels and the known-good code as values; what was judged of single findings. Data lies in the .toml files."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

HERE = Path(__file__).parent
Split: TypeAlias = Literal["dev", "held-out"]
SPLITS: tuple[Split, ...] = ("dev", "held-out")


def split(repository: str) -> Split:
    """Return the half of a repository: the folder whose files name it. A repository that no file names is of dev."""
    return "held-out" if repository in _held_out() else "dev"


@functools.cache
def _held_out() -> frozenset[str]:
    files = (("labels.toml", "label"), ("good.toml", "code"), ("wild.toml", "code"))
    return frozenset(e["repository"] for name, key in files for e in _read("held-out", name, key))


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
class CodeBase:
    """Code without labels: the Python files of ``paths`` (folders or files; "" is all) but those below ``without``.

    ``well_kept``: nearly every finding in it is a false alarm, and its lines count for the noise. Else it is *wild*:
    some team's training code as it is, for precision alone.
    """

    repository: str
    commit: str
    paths: tuple[str, ...]
    without: tuple[str, ...] = ()
    well_kept: bool = True


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a person who read the code says of the findings with one fingerprint. ``only``: it is not real for the one
    reason that its authors start the program as ``one process``, or on ``one node``; empty for all other reasons."""

    real: bool
    why: str
    only: str = ""


Fingerprint: TypeAlias = tuple[str, str, str, str]  # repository, code, path, symbol


def labels() -> tuple[Label, ...]:
    return tuple(Label(**_tuples(entry)) for half in SPLITS for entry in _read(half, "labels.toml", "label"))


def code_bases() -> tuple[CodeBase, ...]:
    """Return the well-kept code and the wild code of both halves."""
    return tuple(_codes("good.toml", well_kept=True)) + tuple(_codes("wild.toml", well_kept=False))


def judgements() -> Mapping[Fingerprint, Judgement]:
    entries = [entry for half in SPLITS for entry in _read(half, "judgements.toml", "judgement")]
    return {
        (e["repository"], e["code"], e["path"], e["symbol"]): Judgement(e["real"], e["why"], e.get("only", ""))
        for e in entries
    }


def _codes(name: str, *, well_kept: bool) -> Iterator[CodeBase]:
    for half in SPLITS:
        for entry in _read(half, name, "code"):
            yield CodeBase(**_tuples(entry), well_kept=well_kept)


def _read(half: Split, name: str, key: str) -> list[dict[str, Any]]:
    path = HERE / half.replace("-", "_") / name
    entries: list[dict[str, Any]] = tomllib.loads(path.read_text()).get(key, [])
    return entries


def _tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
