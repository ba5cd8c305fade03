"""Define after how many seconds without progress a hang is reported, separately for the stages of a training.

This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from allranks.launch.stall import DEFAULT_HANG_AFTER


class Stage(NamedTuple):
    """A stage of a training: its ``name``, its name for people, and the option and variable that set its limit."""

    name: str
    title: str
    option: str
    variable: str


STEP = Stage("step", "a training step", "--hang-after", "ALLRANKS_HANG_AFTER")
FIRST_STEP = Stage("first_step", "the first step", "--hang-first-step", "ALLRANKS_HANG_FIRST_STEP")
EVALUATION = Stage("evaluation", "evaluation", "--hang-evaluation", "ALLRANKS_HANG_EVALUATION")
CHECKPOINT = Stage("checkpoint", "a checkpoint", "--hang-checkpoint", "ALLRANKS_HANG_CHECKPOINT")
# Stages whose limit is that of a training step, unless it is set.
OTHER_STAGES = (FIRST_STEP, EVALUATION, CHECKPOINT)
_STAGES = {stage.name: stage for stage in (STEP, *OTHER_STAGES)}


@dataclass(frozen=True, slots=True)
class HangLimits:
    """The limits in seconds (inf: never): ``step``, and in ``by_stage`` those of other stages that are set."""

    step: float
    by_stage: tuple[tuple[str, float], ...] = ()

    def of(self, stage: str) -> float:
        """Return the limit of a stage."""
        return dict(self.by_stage).get(stage, self.step)

    def is_exact(self, stage: str) -> bool:
        """Return whether the user has set the limit of this stage, which then holds also for ranks that work."""
        return stage in dict(self.by_stage)

    @property
    def shortest(self) -> float:
        return min(self.step, *(seconds for _, seconds in self.by_stage)) if self.by_stage else self.step

    def describe(self, stage: str) -> str:
        """Return a text that says which limit holds in a stage, and which option sets it."""
        known = _STAGES[stage]
        if stage == STEP.name or self.is_exact(stage):
            return f"limit for {known.title} {self.of(stage):g} s: {known.option}"
        return f"limit {self.step:g} s: {STEP.option} ({known.option} sets that for {known.title})"


def read_limits(hang_after: float | Mapping[str, float], environ: Mapping[str, str]) -> HangLimits | None:
    """Return the limits that a program and the variables set; None to report no hang.

    ``hang_after`` is the limit of a step, or limits by the names of stages. A variable overrides the program. Raises
    ValueError for what is not a number of seconds, or the name of a stage.
    """
    given = dict(hang_after) if isinstance(hang_after, Mapping) else {STEP.name: hang_after}
    if unknown := sorted(map(str, given.keys() - _STAGES.keys())):
        raise ValueError(f"hang_after has {', '.join(unknown)}: expected {', '.join(_STAGES)}")
    found: dict[str, float] = {}
    for name, stage in _STAGES.items():
        text = environ.get(stage.variable, given.get(name))
        if text is not None:
            found[name] = _seconds(text, stage)
    step = found.pop(STEP.name, DEFAULT_HANG_AFTER)
    return HangLimits(step, tuple((name, seconds or float("inf")) for name, seconds in found.items())) if step else None


def _seconds(text: str | float, stage: Stage) -> float:
    try:
        seconds = float(text)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"the limit for {stage.title} is {text!r}: expected a number of seconds, 0 for never")
    return seconds
