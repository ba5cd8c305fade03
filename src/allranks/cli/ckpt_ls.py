"""Run ``allranks ckpt ls``: list the steps of a run."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from allranks.checkpoint import inventory, paths, removal, summary
from allranks.checkpoint.inventory import StepFolder
from allranks.checkpoint.items import items_in
from allranks.checkpoint.manifest import Manifest
from allranks.cli import screen
from allranks.cli.place import Place, parse_place
from allranks.errors import Damaged, NewerFormat, NotThere
from allranks.storage.base import Storage

DESCRIPTION = """\
List the steps of a run: complete, damaged and newer ones, and incomplete saves.
Reads only manifests; `allranks ckpt verify` reads the other files."""
_MOST_FOLDERS = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run's folder, or s3://bucket/run")


def run(arguments: argparse.Namespace) -> int:
    at = parse_place(arguments.run)
    found = [one for one in inventory.survey_folders(at.storage) if at.step in (None, one.step)]
    newest = max((one.step for one in found if one.state == "whole"), default=None)
    whole = next((items_in(one.manifest) for one in found if one.step == newest and one.manifest), frozenset())
    now, memory = time.time(), _in_memory(at.storage)
    if arguments.json:
        steps = [_document(one, whole, now) for one in found]
        document = {"run": at.storage.url, "newest": newest, "memory": memory and memory.step, "steps": steps}
        screen.show_json(document)
    elif found:
        _show(found, newest, whole, now)
    if memory is not None and not arguments.json:
        told = "is in the memory of the job's hosts: only a restart of the job on these hosts can read it"
        screen.show(f"step {memory.step} ({screen.time_of(memory.created)} UTC) {told}.")
    if not found and memory is None:
        raise NotThere(f"{at} has no step: {_instead(at)}.")
    return 1 if any(one.state == "damaged" for one in found) else 0


def _in_memory(storage: Storage) -> Manifest | None:
    """Return the manifest of the step in the memory of the job's hosts, or None if there is no readable one."""
    try:
        return inventory.load_from_memory(storage)
    except (NotThere, Damaged, NewerFormat):
        return None


def _instead(at: Place) -> str:
    """Return a text that says what is at this place, which has no step."""
    there = at.storage.list("")
    if any(entry.name == paths.MANIFEST for entry in there):
        return "it is the folder of one checkpoint, not a run: use `allranks ckpt show`"
    folders = [entry.name for entry in there if entry.size is None][:_MOST_FOLDERS]
    runs = [
        name
        for name in folders
        if any(paths.parse_step_folder(entry.name) is not None for entry in at.storage.list(name))
    ]
    if runs:
        return f"it is not a run, but it contains the runs {', '.join(runs)}"
    return "it contains other files only" if there else "it is empty, or does not exist"


def _document(one: StepFolder, whole: frozenset[str], now: float) -> dict[str, Any]:
    manifest = one.manifest
    return {
        "step": one.step,
        "state": "reduced" if manifest and one.state == "whole" and _left(manifest, whole) else one.state,
        "why": one.why or None,
        "bytes": one.bytes,
        "created": manifest.created if manifest else None,
        "leaves": len(manifest.leaves) if manifest else None,
        "files": len(manifest.files) if manifest else _shard_files(one),
        "ranks": manifest.world_size if manifest else None,
        "metrics": dict(manifest.metrics) if manifest else None,
        "items": sorted(items_in(manifest)) if manifest else None,
        "unchanged_for": None if one.last_change_time is None else round(max(now - one.last_change_time, 0.0), 3),
    }


def _show(found: Sequence[StepFolder], newest: int | None, whole: frozenset[str], now: float) -> None:
    columns = ["step", "created (UTC)", "size", "leaves", "files", "ranks", "metrics", "state"]
    rows = [_row(one, newest, whole) for one in found]
    screen.show(screen.table(columns, rows, right=["step", "size", "leaves", "files", "ranks"]))
    notes = [note for one in found if (note := _note(one, now))]
    if notes:
        screen.show("")
        for note in notes:
            print(note)


def _row(one: StepFolder, newest: int | None, whole: frozenset[str]) -> list[str]:
    manifest = one.manifest
    if manifest is None:
        return [str(one.step), "", screen.size(one.bytes), "", f"{_shard_files(one):,}", "", "", one.state]
    return [
        str(one.step),
        screen.time_of(manifest.created),
        screen.size(summary.checkpoint_bytes(manifest)),
        f"{len(manifest.leaves):,}",
        f"{len(manifest.files):,}",
        f"{manifest.world_size:,}",
        "  ".join(f"{name} {value:.4g}" for name, value in manifest.metrics.items()),
        "newest" if one.step == newest else _left(manifest, whole),
    ]


def _left(manifest: Manifest, whole: frozenset[str]) -> str:
    """Return the items that a reduced step still has, as text, or "" if the step has all items of the newest step."""
    items, files = items_in(manifest), [paths.parse_shard_file(file.name) for file in manifest.files]
    of_items = all(said is not None and said.item for said in files)
    return f"{', '.join(sorted(items))} only" if of_items and items < whole else ""


def _shard_files(one: StepFolder) -> int:
    return sum(paths.parse_shard_file(file.name) is not None for file in one.files)


def _note(one: StepFolder, now: float) -> str:
    if one.state in ("damaged", "newer"):
        return f"step {one.step}: {one.why}"
    if one.state == "unfinished":
        age = screen.duration(None if one.last_change_time is None else now - one.last_change_time)
        return (
            f"step {one.step}: no manifest, so it is not a checkpoint: its save is running, or was never completed "
            f"({screen.size(one.bytes)}, unchanged for {age}); `allranks ckpt gc` {_removal(one, now)}."
        )
    return ""


def _removal(one: StepFolder, now: float) -> str:
    """Return what gc does with a folder without a manifest."""
    leftover = removal.find_leftover_files(one, now_seconds=now)
    if one.link:
        return "leaves it: its folder is a symbolic link"
    if leftover is None:
        return "leaves it: it has no file of allranks"
    return "removes it" if leftover.fills_folder else "removes the files of allranks in it, and leaves the others"
