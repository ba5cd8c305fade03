"""Run ``allranks ckpt gc``: remove leftovers and steps of a run."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from allranks.checkpoint import fence, holds, inventory, removal, retention_policy
from allranks.checkpoint.inventory import StepFolder
from allranks.checkpoint.removal import LeftoverFiles, StepRemoval, choose_leftovers, plan_step_removal
from allranks.cli import screen
from allranks.cli.place import Place, parse_place
from allranks.errors import AllranksError, Fenced, NotThere, StorageError
from allranks.failure import one_line
from allranks.storage.detect import canonical_place

DESCRIPTION = """\
Remove leftovers of incomplete saves, and with --keep-last or --keep-every also steps.
Only the manifest, the files that it names and files with names of allranks are removed. Everything else stays, and so
do steps with a damaged or newer manifest. Symbolic links are not followed."""
_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Work:
    """What to remove: ``leftovers`` and ``steps``.

    ``spared`` are leftovers that are too young to remove. ``kept`` says why other steps stay, and why files in the
    folders of removed steps stay. ``failed``: the steps of which the storage has refused to remove files.
    """

    leftovers: tuple[LeftoverFiles, ...]
    spared: tuple[LeftoverFiles, ...]
    steps: tuple[StepRemoval, ...]
    kept: tuple[tuple[int, str], ...]
    failed: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.leftovers) + sum(one.bytes for one in self.steps)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run's folder, or s3://bucket/run")
    parser.add_argument("--keep-last", type=int, metavar="N", help="keep the newest N steps")
    parser.add_argument("--keep-every", type=int, metavar="K", help="also keep every multiple of K")
    parser.add_argument(
        "--older-than",
        type=_seconds,
        default="1h",
        metavar="AGE",
        help="remove leftovers that have not changed for AGE: 30min, 1h (default), 2d",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be removed, and remove nothing")
    parser.add_argument("--force", action="store_true", help="remove even while a job writes into the run")


def run(arguments: argparse.Namespace) -> int:
    at = parse_place(arguments.run)
    if at.step is not None:
        raise NotThere(f"gc: {arguments.run} is the folder of one step: expected the folder of a run.")
    if not at.storage.list(""):
        raise NotThere(f"gc: {at} is empty or does not exist: expected the folder of a run.")
    holder = _holder(at, force=arguments.force or arguments.dry_run)
    work = _work(inventory.survey_folders(at.storage), holds.held_steps(at.storage), arguments)
    if not arguments.dry_run:
        work = _remove(at, work)
    if arguments.json:
        screen.show_json(_document(at, work, removed=not arguments.dry_run))
    else:
        _show(at, work, holder, dry=arguments.dry_run)
    return 1 if work.failed else 0


def _holder(at: Place, *, force: bool) -> str:
    """Return a description of the job that may still write into the run, or "" if there is none.

    Raises Fenced if this job is alive on this machine, unless ``force``.
    """
    held = fence.newest_fence(at.storage)
    if held is None or held.released:
        return ""
    asking, place = fence.this_process(), canonical_place(at.storage)
    lives = fence.owner_is_alive_here(held, asking, place)
    if lives and not force:
        raise Fenced(
            f"{at}: {fence.describe_owner(held)} writes into this run and is alive.",
            remedy="Wait for the job, or end it. With --force, gc removes files all the same, also files that the "
            "job is writing.",
        )
    copied = held.place not in ("", place)
    return fence.describe_owner(held) if lives or (held.owner.machine != asking.machine and not copied) else ""


def _work(found: Sequence[StepFolder], held: Mapping[int, str], arguments: argparse.Namespace) -> Work:
    try:
        policy = retention_policy.RetentionPolicy(keep_last=arguments.keep_last, keep_every=arguments.keep_every)
    except ValueError as error:
        raise AllranksError(str(error)) from None
    saved = [retention_policy.Saved(one.step, one.manifest.metrics) for one in found if one.manifest]
    chosen = retention_policy.choose_removed_steps(saved, policy)
    stay = {one.step: why for one in found if (why := _obstacle(one, held, chosen))}
    go = tuple(plan_step_removal(one) for one in found if one.step in chosen and one.step not in stay)
    rest = [one for one in found if one.step not in chosen and one.step not in held]
    cleared = choose_leftovers(rest, now_seconds=time.time(), older_than=arguments.older_than)
    foreign = [(one.step, one.foreign) for one in go] + [(one.step, removal.foreign_leftovers(one)) for one in rest]
    others = [(step, f"not ours: {', '.join(names)}") for step, names in foreign if names and step not in stay]
    return Work(cleared.remove, cleared.spare, go, tuple(sorted([*stay.items(), *others])))


def _obstacle(found: StepFolder, held: Mapping[int, str], chosen: Sequence[int]) -> str:
    """Return why nothing in a step's folder is removed, or "" if something may be removed."""
    if found.step in held and (found.step in chosen or found.manifest is None):
        return held[found.step]
    if found.link:
        return removal.LINK
    return {"newer": removal.NEWER, "damaged": removal.DAMAGED}.get(found.state, "")


def _remove(at: Place, work: Work) -> Work:
    """Remove the planned files and steps; return what was removed. What cannot be removed stays, with the reason."""
    stayed: dict[int, str] = {}
    failed: list[int] = []
    for leftover in work.leftovers:
        try:
            removal.remove_files(at.storage, leftover.step, leftover.names)
        except StorageError as error:
            stayed[leftover.step] = str(error)
            failed.append(leftover.step)
    for one in work.steps:
        try:
            if removal.remove_step(at.storage, one.step) is None:
                stayed[one.step] = "a reader has just taken hold of it"
        except StorageError as error:
            stayed[one.step] = str(error)
            failed.append(one.step)
    return replace(
        work,
        leftovers=tuple(one for one in work.leftovers if one.step not in stayed),
        steps=tuple(one for one in work.steps if one.step not in stayed),
        kept=tuple(sorted([*work.kept, *stayed.items()])),
        failed=tuple(failed),
    )


def _document(at: Place, work: Work, *, removed: bool) -> dict[str, Any]:
    return {
        "run": at.storage.url,
        "removed": removed,
        "bytes": work.bytes,
        "steps": [{"step": one.step, "bytes": one.bytes} for one in work.steps],
        "leftovers": [_leftover(one) for one in work.leftovers],
        "spared": [_leftover(one) for one in work.spared],
        "kept": [{"step": step, "why": why} for step, why in work.kept],
    }


def _leftover(one: LeftoverFiles) -> dict[str, Any]:
    age = None if one.age is None else round(one.age, 3)
    return {"step": one.step, "files": list(one.names), "bytes": one.bytes, "unchanged_for": age}


def _show(at: Place, work: Work, holder: str, *, dry: bool) -> None:
    if holder:
        print(f"note: {holder} has not closed this run. This machine cannot see whether it is alive.")
    does = "would remove" if dry else "removed"
    for one in work.leftovers:
        what = "unfinished save" if one.fills_folder else "files that no manifest names"
        many, age = screen.count(len(one.names), "file"), screen.duration(one.age)
        print(f"{does} step {one.step}: {what}: {many}, {screen.size(one.bytes)}, unchanged for {age}")
    for step in work.steps:
        print(f"{does} step {step.step}: not kept by the policy: {screen.size(step.bytes)}")
    for one in work.spared:
        age = screen.duration(one.age)
        print(f"left step {one.step}: {screen.size(one.bytes)} of a save, changed {age} ago (--older-than)")
    for number, why in work.kept:
        print(f"left step {number}: {one_line(why)}")
    if not work.leftovers and not work.steps:
        print(f"{at}: nothing to remove.")
    else:
        print(f"{'would free' if dry else 'freed'} {screen.size(work.bytes)} in {at}")


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(s|min|m|h|d)?", text.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: expected one such as 30min, 1h or 2d")
    return float(found[1]) * _UNITS[found[2] or ""]
