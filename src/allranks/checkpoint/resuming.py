"""The resume gate: the first values after a resume, compared over all ranks with those that were recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allranks.checkpoint import agree
from allranks.checkpoint.metrics import as_numbers
from allranks.checkpoint.resume_gate import Loaded, compare, message, reasons
from allranks.errors import AllranksError, NotResumed
from allranks.gate.log import log
from allranks.world.base import World


def resume_gate(
    first: Mapping[str, Any],
    recorded: Mapping[str, float],
    *,
    within: float,
    world: World,
    loaded: Loaded | None = None,
    step: int | None = None,
) -> None:
    """Raise NotResumed on every rank unless the values fit. **Every rank must call**, with the same names."""
    error, numbers = None, {}
    try:
        numbers = as_numbers(first)
    except Exception as found:  # the others must not wait
        error = found
    said = world.all_gather([agree.refusal_of(error), numbers, dict(recorded)], name="resume gate")
    if error is not None:
        raise error
    who = f"rank {world.rank}: resume gate"
    if refused := agree.first_refusal([one[0] for one in said]):
        raise agree.refusal_error(refused, who=who, step=step)
    compared = compare([one[1] for one in said], said[0][2], within=within) if _alike(said) else []
    if not compared:
        raise AllranksError(
            f"{who}: nothing to compare: here {_names(first)}, recorded {_names(recorded)}.",
            step=step,
            remedy="Give metrics to save() (metrics={'loss': ...}), and the same names on all ranks here.",
        )
    if all(one.fits for one in compared):
        log("resume gate: %s.", "; ".join(map(str, compared)))
        return
    raise NotResumed(f"{who}: {message(compared, reasons(compared, loaded, step=step), within=within)}", step=step)


def _names(values: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, values)) or "nothing"


def _alike(said: Sequence[Any]) -> bool:
    return all(one[1].keys() == said[0][1].keys() for one in said)
