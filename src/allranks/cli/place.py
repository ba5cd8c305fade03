"""Parse the address of a run or a checkpoint: RUN, RUN@STEP, RUN/checkpoint-STEP, or the folder of a checkpoint."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

from allranks.checkpoint import inventory, paths
from allranks.checkpoint.manifest import Manifest
from allranks.errors import NotThere
from allranks.storage.base import Storage
from allranks.storage.detect import open_storage

_AT = re.compile(r"(.+)@([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Place:
    """A run or a checkpoint: the run as the user typed it, its storage, and the step (None: the newest step).

    ``folder`` is "" if the address is the folder of one checkpoint, with any name, and not a run.
    """

    run: str
    storage: Storage
    step: int | None
    folder: str | None = None

    def __str__(self) -> str:
        return self.run if self.step is None else f"{self.run}/{paths.step_folder(self.step)}"

    def at(self, step: int) -> Place:
        """Return the place of step ``step`` of the same run."""
        return Place(self.run, self.storage, step)

    def manifest(self) -> Manifest:
        """Return the manifest of the checkpoint. Raises NotThere, NewerFormat, Damaged."""
        if self.folder is not None:
            return inventory.load_folder(self.storage, self.folder)
        assert self.step is not None
        return inventory.load_manifest(self.storage, self.step)


def parse_place(text: str, *, step: int | None = None, direct: bool = False) -> Place:
    """Parse the address of a run, with or without a step.

    With ``direct``, files are read without the page cache: for a command that reads everything once. Raises NotThere if
    the text and ``step`` name different steps.
    """
    run, given = text.rstrip("/") or "/", None
    if found := _AT.fullmatch(run):
        run, given = found[1], int(found[2])
    elif (last := paths.parse_step_folder(run.rpartition("/")[2])) is not None:
        run, given = run.rpartition("/")[0] or ".", last
    if given is not None and step is not None and given != step:
        raise NotThere(
            f"{text} names step {given}, but --step names step {step}: expected the same step in both, or "
            "only one of them."
        )
    return Place(run, open_storage(run, direct=direct), given if step is None else step)


def parse_checkpoint(text: str, *, step: int | None = None, direct: bool = False) -> Place:
    """Parse the address of one checkpoint: a step of a run, or a folder of any name with a manifest."""
    if step is None:
        address = text.rstrip("/") or "/"
        storage = open_storage(address, direct=direct)
        if storage.size(paths.MANIFEST) is not None:
            return Place(address, storage, None, folder="")
    return parse_place(text, step=step, direct=direct)


def choose_step(at: Place) -> Place:
    """Return the place with its step, or with the newest step if it names none.

    Raises NotThere, which lists the steps.
    """
    if at.folder is not None:
        return at
    found = inventory.complete_steps(at.storage)
    if at.step in found or _has_manifest(at):
        return at
    if at.step is None and found:
        return at.at(found[-1])
    if not found:
        raise NotThere(
            f"{at.run} has no checkpoint: expected the folder of a run.",
            remedy="`allranks ckpt ls` shows the content of the folder.",
        )
    shown = ", ".join(map(str, found)) if len(found) < 9 else f"{len(found)} steps, {found[0]} to {found[-1]}"
    raise NotThere(f"{at.run} has no step {at.step}: expected one of {shown}.")


def _has_manifest(at: Place) -> bool:
    """Return whether the step has a manifest, also if it is a pipe, a folder or a link."""
    return at.step is not None and any(
        entry.name == paths.MANIFEST for entry in at.storage.list(paths.step_folder(at.step))
    )


def load_manifest(at: Place) -> tuple[Place, Manifest]:
    """Return the place with its step, and the checkpoint's manifest. Raises NotThere, NewerFormat, Damaged."""
    at = choose_step(at)
    return at, at.manifest()


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add the argument RUN and the option --step to a command's parser."""
    parser.add_argument("run", metavar="RUN", help="the run, or one checkpoint: a folder or s3://bucket/run")
    parser.add_argument("--step", type=int, metavar="N", help="the step (default: the newest)")
