"""What a person types for a run or a checkpoint: RUN, RUN@STEP, RUN/checkpoint-STEP, the folder of a checkpoint."""

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
    """A run, as it was typed and opened, and the step that is meant; None: the newest.

    With ``folder`` "" it is no run, but the folder of one checkpoint, whatever that is called.
    """

    run: str
    storage: Storage
    step: int | None
    folder: str | None = None

    def __str__(self) -> str:
        return self.run if self.step is None else f"{self.run}/{paths.step_folder(self.step)}"

    def at(self, step: int) -> Place:
        """Return this step of the run."""
        return Place(self.run, self.storage, step)

    def manifest(self) -> Manifest:
        """Return the manifest of the one checkpoint that is meant. Raises NotThere, NewerFormat, Damaged."""
        if self.folder is not None:
            return inventory.load_folder(self.storage, self.folder)
        assert self.step is not None
        return inventory.load(self.storage, self.step)


def place(text: str, *, step: int | None = None, direct: bool = False) -> Place:
    """Return what is meant. A step in the text and another one in ``step`` is an error of who types.

    ``direct`` is for those who read everything once: past the page cache.
    """
    run, said = text.rstrip("/") or "/", None
    if found := _AT.fullmatch(run):
        run, said = found[1], int(found[2])
    elif (last := paths.step_of(run.rpartition("/")[2])) is not None:
        run, said = run.rpartition("/")[0] or ".", last
    if said is not None and step is not None and said != step:
        raise NotThere(f"{text} names step {said}, and --step says {step}.")
    return Place(run, open_storage(run, direct=direct), said if step is None else step)


def checkpoint(text: str, *, step: int | None = None, direct: bool = False) -> Place:
    """Return the one checkpoint that is meant: a step of a run, or a folder with a manifest, whatever its name."""
    if step is None:
        address = text.rstrip("/") or "/"
        storage = open_storage(address, direct=direct)
        if storage.size(paths.MANIFEST) is not None:
            return Place(address, storage, None, folder="")
    return place(text, step=step, direct=direct)


def choose_step(at: Place) -> Place:
    """Return the place with the step that is meant. Raises NotThere, saying what there is."""
    if at.folder is not None:
        return at
    found = inventory.steps(at.storage)
    if at.step in found:
        return at
    if at.step is None and found:
        return at.at(found[-1])
    if not found:
        raise NotThere(f"{at.run} holds no checkpoint.", remedy="`allranks ckpt ls` shows what is there.")
    shown = ", ".join(map(str, found)) if len(found) < 9 else f"{len(found)} steps, {found[0]} to {found[-1]}"
    raise NotThere(f"{at.run} has no step {at.step}: expected one of {shown}.")


def load(at: Place) -> tuple[Place, Manifest]:
    """Return a place with its step, and the manifest. Raises NotThere, NewerFormat, Damaged."""
    at = choose_step(at)
    return at, at.manifest()


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add RUN and --step to a command."""
    parser.add_argument("run", metavar="RUN", help="the run, or one checkpoint: a folder or s3://bucket/run")
    parser.add_argument("--step", type=int, metavar="N", help="the step (default: the newest)")
