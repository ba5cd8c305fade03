"""The labels and the known-good code as values; what was judged of single findings.

The data are JSON lines, sorted: ``labels.jsonl``, ``code.jsonl`` and ``judgements.jsonl``, in the folder ``dev`` and in
the archive ``held_out.zip``, which nobody who writes rules opens.
"""

from __future__ import annotations

import functools
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

HERE = Path(__file__).parent
Split: TypeAlias = Literal["dev", "held-out"]
SPLITS: tuple[Split, ...] = ("dev", "held-out")


def split(repository: str) -> Split:
    """Return the half of a repository: the one whose data name it. A repository that none names is of dev."""
    return "held-out" if repository in _held_out() else "dev"


@functools.cache
def _held_out() -> frozenset[str]:
    return frozenset(e["repository"] for name in ("labels", "code") for e in _read("held-out", name))


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
    return tuple(Label(**_tuples(entry)) for half in SPLITS for entry in _read(half, "labels"))


def code_bases() -> tuple[CodeBase, ...]:
    """Return the well-kept code and the wild code of both halves."""
    return tuple(CodeBase(**_tuples(entry)) for half in SPLITS for entry in _read(half, "code"))


def judgements() -> Mapping[Fingerprint, Judgement]:
    """Return what was said of findings, by their fingerprint."""
    entries = [entry for half in SPLITS for entry in _read(half, "judgements")]
    return {
        (e["repository"], e["code"], e["path"], e["symbol"]): Judgement(e["real"], e["why"], e.get("only", ""))
        for e in entries
    }


def _read(half: Split, name: str) -> list[dict[str, Any]]:
    if half == "dev":
        text = (HERE / "dev" / f"{name}.jsonl").read_text(encoding="utf-8")
    else:
        with zipfile.ZipFile(HERE / "held_out.zip") as archive:
            text = archive.read(f"{name}.jsonl").decode()
    return [json.loads(line) for line in text.splitlines()]


def _tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
