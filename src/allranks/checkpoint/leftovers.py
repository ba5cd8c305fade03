"""What may be cleared out of a run: files that no manifest names, once nobody can be writing them any more. Pure.

A save writes its files first and names them last. So what no manifest names is of a save that goes on, or of one that
died. A folder in which nothing has changed for a while is of the second kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from allranks.checkpoint import paths
from allranks.checkpoint.inventory import Found
from allranks.storage.base import Entry

# What LocalStorage leaves behind when it is killed while it puts a manifest.
_OF_A_PUT = re.compile(r"\.manifest\.json\.([0-9a-f]{8}\.tmp|claim)")


@dataclass(frozen=True, slots=True)
class Leftover:
    """Files of a step's folder that no manifest names. ``age`` is the seconds for which the folder has not changed,
    None where that is not known; ``whole`` says that nothing else stands in the folder."""

    step: int
    names: tuple[str, ...]
    bytes: int
    age: float | None
    whole: bool


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What of a step's folder goes with the step: ``bytes``; and the names ``others`` that are not ours, and stay."""

    step: int
    bytes: int
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clearance:
    """``remove`` are old enough; ``spare`` are not, or their age is not known."""

    remove: tuple[Leftover, ...]
    spare: tuple[Leftover, ...]


def leftover(found: Found, *, now: float) -> Leftover | None:
    """Return what is left over in a folder, None if nothing is. Files with names that are not ours are left alone.

    ``now`` is in seconds since 1970. Of a manifest that cannot be read nobody knows what it names: all that is there
    stays. So does what a symbolic link leads to.
    """
    if found.state in ("damaged", "newer") or found.link:
        return None
    named = {file.name for file in found.manifest.files} if found.manifest else set()
    mine = [file for file in found.files if file.size is not None and _is_ours(file.name) and file.name not in named]
    if not mine and (found.manifest or found.files):
        return None
    return Leftover(
        found.step,
        tuple(file.name for file in mine),
        sum(file.size or 0 for file in mine),
        None if found.changed is None else max(now - found.changed, 0.0),
        found.state == "unfinished" and len(mine) == len(found.files),
    )


def split(entries: Iterable[Entry], named: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names in a step's folder that go with the step (but for the manifest), and those that are not ours.

    ``named`` are the files that the manifest names.
    """
    known = {*named}
    ours: list[str] = []
    others: list[str] = []
    for entry in entries:
        if entry.name != paths.MANIFEST:
            mine = entry.size is not None and (entry.name in known or _is_ours(entry.name))
            (ours if mine else others).append(entry.name)
    return tuple(ours), tuple(others)


def checkpoint(found: Found) -> Checkpoint:
    """Return what goes with a whole step, and what stays."""
    ours, others = split(found.files, [file.name for file in found.manifest.files] if found.manifest else ())
    gone = {*ours, paths.MANIFEST}
    return Checkpoint(found.step, sum(file.size or 0 for file in found.files if file.name in gone), others)


def clearance(found: Iterable[Found], *, now: float, older_than: float) -> Clearance:
    """Return what to remove: what has not changed for ``older_than`` seconds."""
    left = [one for one in (leftover(each, now=now) for each in found) if one is not None]
    old = [one for one in left if one.age is not None and one.age >= older_than]
    return Clearance(tuple(old), tuple(one for one in left if one not in old))


def _is_ours(name: str) -> bool:
    return paths.shard_file_of(name) is not None or _OF_A_PUT.fullmatch(name) is not None
