"""Compare the first metrics after a resume with the recorded ones. If they differ, list the likely reasons.

A model that was restored completely has the recorded loss on the same data. If the loss differs at the first step, the
model or the data is a different one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from allranks.checkpoint import agree
from allranks.checkpoint.save_request import metrics_as_floats
from allranks.errors import AllranksError, NotResumed, name_ranks
from allranks.gate.log import log
from allranks.world.base import World


class LoadedWeights(Protocol):
    """The attributes of a ``LoadReport`` that the resume gate uses."""

    @property
    def coverage(self) -> float: ...

    @property
    def missing(self) -> tuple[str, ...]: ...

    @property
    def rename(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class ComparedMetric:
    """One metric: the ``recorded`` value, the values ``now`` by rank, their ``mean``, and whether the mean ``fits``."""

    name: str
    recorded: float
    now: tuple[float, ...]
    mean: float
    fits: bool

    def __str__(self) -> str:
        times = f", {self.mean / self.recorded:.3g} times as much" if self.recorded and math.isfinite(self.mean) else ""
        return f"{self.name}: expected {self.recorded:.6g}, found {self.mean:.6g}{times}"

    @property
    def inconsistent_ranks(self) -> str:
        """A text that names the ranks that differ, if other ranks are as recorded; "" otherwise."""
        good = [rank for rank, value in enumerate(self.now) if _is_near(value, self.recorded, 0.5)]
        bad = [rank for rank in range(len(self.now)) if rank not in good]
        if not good or not bad:
            return ""
        say = f"{self.now[good[0]]:.6g} on {name_ranks(good)}, {self.now[bad[0]]:.6g} on {name_ranks(bad)}"
        return f"the ranks differ: {self.name} is {say}. Were the weights loaded on some ranks only?"


def compare_metrics(
    metrics_by_rank: Sequence[Mapping[str, float]], recorded_metrics: Mapping[str, float], *, tolerance: float
) -> list[ComparedMetric]:
    """Compare the metrics that were both recorded and measured.

    ``metrics_by_rank``: the values, by rank. ``tolerance``: the allowed difference, as a fraction of the recorded
    value. A value that is not finite never fits.
    """
    found = []
    for name in [name for name in metrics_by_rank[0] if name in recorded_metrics]:
        now = tuple(one[name] for one in metrics_by_rank)
        mean = math.fsum(now) / len(now) if all(map(math.isfinite, now)) else math.nan
        found.append(
            ComparedMetric(name, recorded_metrics[name], now, mean, _is_near(mean, recorded_metrics[name], tolerance))
        )
    return found


def _is_near(value: float, recorded: float, within: float) -> bool:
    return math.isfinite(value) and abs(value - recorded) <= within * max(abs(recorded), 1e-12)


def possible_reasons(
    compared: Sequence[ComparedMetric], loaded_weights: LoadedWeights | None, *, step: int | None
) -> list[str]:
    """Return possible reasons for the difference, with their evidence, the likeliest first."""
    found = [one.inconsistent_ranks for one in compared if one.inconsistent_ranks]
    if loaded_weights is None:
        found.append(
            "coverage: was every weight loaded? restore() loads all or nothing. After allranks.load, pass its result "
            "as report="
        )
    elif loaded_weights.missing:
        some = ", ".join(loaded_weights.missing[:6]) + (", ..." if len(loaded_weights.missing) > 6 else "")
        share = f"{loaded_weights.coverage:.6g} of the template was loaded"
        found.append(f"coverage: {share}; {len(loaded_weights.missing)} leaves keep their initial values: {some}")
    statistics = [path for path in (loaded_weights.missing if loaded_weights else ()) if _is_statistic(path)]
    lacking = f"its statistics were not loaded: {', '.join(statistics[:6])}; and " if statistics else ""
    found.append(
        f"normalisation: {lacking}are the inputs scaled by the mean and deviation of the first run, and is the "
        "model in the same mode (train or eval) as when the value was recorded?"
    )
    if loaded_weights is not None and loaded_weights.rename:
        found.append(f"renamed layers: more would fit with rename={dict(loaded_weights.rename)}")
    else:
        found.append("renamed layers: does a name now belong to another layer (order, activation, head)?")
    where = f" at step {step}" if step is not None else ""
    found.append(f"data position: does the loader continue{where} where it was, with the same data and masks?")
    found.append("learning-rate schedule: does it continue, or warm up again? This shows only after a few steps")
    return found


def _is_statistic(path: str) -> bool:
    *_, name = path.replace("/", ".").removesuffix(".value").split(".")
    return name in ("running_mean", "running_var", "mean", "var", "std", "num_batches_tracked")


def difference_message(compared: Sequence[ComparedMetric], reasons: Sequence[str], *, tolerance: float) -> str:
    """Return the error message: the metrics that do not fit, and the possible ``reasons``."""
    odd = "; ".join(str(one) for one in compared if not one.fits)
    listed = "\n".join(f"  {number}. {reason}" for number, reason in enumerate(reasons, 1))
    return f"{odd}. The difference is more than within={tolerance:g}. Likely reasons, in order:\n{listed}"


def check_first_metrics(
    first_metrics: Mapping[str, Any],
    recorded_metrics: Mapping[str, float],
    *,
    tolerance: float,
    world: World,
    loaded: LoadedWeights | None = None,
    step: int | None = None,
) -> None:
    """Raise NotResumed on every rank unless the first metrics fit the recorded ones.

    **Every rank must call**, with the same names. ``tolerance``: the allowed difference, a fraction of the recorded
    value.
    """
    error, numbers = None, {}
    try:
        numbers = metrics_as_floats(first_metrics)
    except Exception as found:  # the others must not wait
        error = found
    said = world.all_gather([agree.refusal_of(error), numbers, dict(recorded_metrics)], name="resume gate")
    if error is not None:
        raise error
    who = f"rank {world.rank}: resume gate"
    if refused := agree.first_refusal([one[0] for one in said]):
        raise agree.refusal_error(refused, operation=who, step=step)
    compared = (
        compare_metrics([one[1] for one in said], said[0][2], tolerance=tolerance) if _has_equal_names(said) else []
    )
    if not compared:
        raise AllranksError(
            f"{who}: no metric to compare: expected one of {_listed_names(recorded_metrics)}, "
            f"found {_listed_names(first_metrics)}.",
            step=step,
            remedy="Pass metrics to save() (metrics={'loss': ...}), and the same names here on all ranks.",
        )
    if all(one.fits for one in compared):
        log("resume gate: %s.", "; ".join(map(str, compared)))
        return
    raise NotResumed(
        f"{who}: {difference_message(compared, possible_reasons(compared, loaded, step=step), tolerance=tolerance)}",
        step=step,
    )


def _listed_names(values: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, values)) or "nothing"


def _has_equal_names(said: Sequence[Any]) -> bool:
    return all(one[1].keys() == said[0][1].keys() for one in said)
