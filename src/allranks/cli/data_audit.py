"""Implement ``allranks data audit``: prove from a run's checkpoints that each sample was read once."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from allranks.checkpoint import inventory
from allranks.cli import screen
from allranks.cli.data_place import add_kind, indexed, of_program, opened
from allranks.cli.place import Place, parse_place
from allranks.data.lineage import ReadPosition, difference_from_plan, find_faults, read_positions, rows_per_step
from allranks.data.open_loader import epoch_planner
from allranks.data.plan import EpochPlan, IndexLayout, SamplePlan
from allranks.errors import NotThere

DESCRIPTION = """\
Prove by the checkpoints of a run that the data was read once: the loader's state in each (extra={"data":
loader.state()}) holds the sum of all samples that led to its weights, over all attempts that it went on from. Without
--data the counts and places are looked at; with it the plan is made again, and the sums must be its own.
  allranks data audit runs/a --data 'data/*.parquet'
  allranks data audit runs/a --data train:data          (the data set, or a function that returns it, in train.py)"""
Plans = Callable[[ReadPosition], SamplePlan | None]


@dataclass(frozen=True, slots=True)
class StateCheck:
    """The result for one saved loader state.

    ``compared`` says whether it was compared with the plan: "yes", "no", or why it cannot be compared.
    """

    position: ReadPosition
    faults: tuple[str, ...]
    compared: str

    @property
    def summary(self) -> str:
        if self.faults:
            return "WRONG"
        return {"yes": "are the plan's", "no": "as many as planned"}.get(self.compared, self.compared)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run's folder, or s3://bucket/run")
    parser.add_argument("--data", metavar="PATTERN", help="what the run has read; or MODULE:NAME of its Dataset")
    add_kind(parser)
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="as in .skip(N)")
    parser.add_argument("--take", type=int, metavar="N", help="as in .take(N), after skip")


def run(arguments: argparse.Namespace) -> int:
    at = parse_place(arguments.run)
    again = _plans(arguments) if arguments.data else None
    by_key, missing = _read(at)
    runs = {key: _judged(found, again) for key, found in by_key.items()}
    bare = sorted({f"step {step} has no state at {key}" for key, steps in missing.items() for step in steps})
    good = not bare and not any(one.faults for found in runs.values() for one in found)
    if arguments.json:
        states = [_document(one) for found in runs.values() for one in found]
        screen.show_json({"run": at.storage.url, "good": good, "states": states, "missing": bare})
    else:
        _show(at, runs, bare, good=good)
    return 0 if good else 1


def _plans(arguments: argparse.Namespace) -> Plans:
    """Return a function that rebuilds the plan of a state. The function returns None if that is not possible."""
    program = of_program(arguments.data)
    if program is not None:
        of_epoch = epoch_planner(program)
        return lambda position: of_epoch(position.epoch)
    whole = indexed(opened(arguments, arguments.data)).index
    index = whole.slice(arguments.skip, whole.samples if arguments.take is None else arguments.skip + arguments.take)

    def plan(position: ReadPosition) -> SamplePlan | None:
        if "quotas" in position.of:
            return None
        streams, window, seed, shuffle = (
            int(position.of.get(word, 1)) for word in ("streams", "window", "seed", "shuffle")
        )
        return EpochPlan(index, IndexLayout(streams, streams, window, seed, bool(shuffle)), position.epoch)

    return plan


def _read(at: Place) -> tuple[dict[str, list[ReadPosition]], dict[str, list[int]]]:
    """Return the loader states of all complete steps, and the steps without a state.

    Both are by their key in ``extra``.
    """
    whole = [
        one for one in inventory.survey_folders(at.storage) if one.manifest is not None and at.step in (None, one.step)
    ]
    if not whole:
        raise NotThere(
            f"audit: {at} has no checkpoint: expected the folder of a run.",
            remedy="`allranks ckpt ls` shows the content of the folder.",
        )
    by_key: dict[str, list[ReadPosition]] = {}
    for one in whole:
        for position in read_positions(one.step, one.manifest.extra if one.manifest else None):
            by_key.setdefault(position.key, []).append(position)
    if not by_key:
        raise NotThere(
            f"audit: no checkpoint in {at} has the state of a loader.",
            remedy='Save the state of the loader: ckpt.maybe_save(step, state, extra={"data": loader.state()}).',
        )
    steps = [one.step for one in whole]
    return by_key, {key: sorted(set(steps) - {one.step for one in found}) for key, found in by_key.items()}


def _judged(found: Sequence[ReadPosition], again: Plans | None) -> list[StateCheck]:
    checks = []
    for before, position in zip([None, *found], found, strict=False):
        wrong, compared = find_faults(position, before), "no"
        if "packing" in position.of:
            compared = "packed: not compared"
        elif again is not None and position.complete:
            plan = again(position)
            compared = "of a mixture: not compared" if plan is None else "yes"
            if plan is not None and (told := difference_from_plan(position, plan)):
                wrong.append(told)
        checks.append(StateCheck(position, tuple(wrong), compared))
    return checks


def _document(one: StateCheck) -> dict[str, Any]:
    position = one.position
    return {
        "step": position.step,
        "key": position.key,
        "epoch": position.epoch,
        "depth": position.depth,
        "samples": position.seen.samples,
        "unusable": position.seen.bad,
        "sum": f"{position.seen.mixed:016x}",
        "plan": position.plan,
        "compared": one.compared,
        "faults": list(one.faults),
    }


def _show(at: Place, runs: dict[str, list[StateCheck]], bare: list[str], *, good: bool) -> None:
    columns = ["step", "epoch", "depth", "samples", "unusable", "plan", "the samples"]
    for key, found in runs.items():
        screen.show(f"{at}: {key}", style="bold")
        screen.show(screen.table(columns, [_row(one) for one in found], right=["step", *columns[1:5]]))
        for one in found:
            for fault in one.faults:
                screen.show(f"step {one.position.step}: {fault}", style="bold red")
        _note(found)
    for told in bare:
        screen.show(told, style="bold red")
    screen.show("")
    if not good:
        screen.show("The ledger does NOT hold.", style="bold red")
    elif all(one.compared == "yes" for found in runs.values() for one in found):
        screen.show(
            "The ledger holds: up to each of these steps, the samples of the plan were taken, each of them once."
        )
    else:
        screen.show("What can be seen holds; --data PATTERN proves that the samples are those of the plan.")


def _row(one: StateCheck) -> list[str]:
    position = one.position
    numbers = (position.step, position.epoch, position.depth, position.seen.samples, position.seen.bad)
    return [*(f"{number:,}" for number in numbers), position.plan, one.summary]


def _note(found: Sequence[StateCheck]) -> None:
    speeds = rows_per_step([one.position for one in found])
    if len(speeds) == 1:
        screen.show(f"Each step of the training took {speeds[0]:,.6g} rows.")
    elif speeds:
        told = f"{speeds[0]:,.6g} to {speeds[-1]:,.6g}"
        screen.show(f"note: a step of the training took {told} rows, not always as many.")
    epochs = [one.position.epoch for one in found]
    first, last = min(epochs), max(epochs) - 1
    if first <= last:
        which = f"Epoch {first}" if first == last else f"Epochs {first} to {last}"
        screen.show(f"{which} ended on the way; the loader has proven it there.")
