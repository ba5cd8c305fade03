"""Which checkpoints of a run are to be deleted: never the newest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple


class Best(NamedTuple):
    """Keep the ``many`` checkpoints whose ``metric`` is the least (``min``) or the greatest (``max``)."""

    metric: str
    order: Literal["min", "max"]
    many: int = 1


@dataclass(frozen=True, slots=True)
class Policy:
    """What is kept: the newest ``keep_last`` (None: all), every step that ``keep_every`` divides, and the best.

    Raises ValueError for what makes no sense.
    """

    keep_last: int | None = None
    keep_every: int | None = None
    keep_best: Best | tuple[str, Literal["min", "max"], int] | None = None

    def __post_init__(self) -> None:
        for name in ("keep_last", "keep_every"):
            if getattr(self, name) is not None:
                _check_positive(name, getattr(self, name))
        if self.keep_best is not None:
            _check_best(self.keep_best)
        if self.keep_last is None and (self.keep_every is not None or self.keep_best is not None):
            raise ValueError(
                "keep_every and keep_best say what to keep beside the newest, but without keep_last everything is "
                "kept. Set keep_last too (keep_last=1 is the least)."
            )


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that is there."""

    step: int
    metrics: Mapping[str, float]


def choose(saved: Sequence[Saved], policy: Policy) -> tuple[int, ...]:
    """Return the steps to delete, in ascending order. Of equal metrics the later step is better; NaN never is."""
    if policy.keep_last is None:
        return ()
    steps = sorted({one.step for one in saved})
    kept = set(steps[-policy.keep_last :])
    if policy.keep_every is not None:
        kept.update(step for step in steps if step % policy.keep_every == 0)
    if policy.keep_best is not None:
        kept.update(_best(saved, Best(*policy.keep_best)))
    return tuple(step for step in steps if step not in kept)


def lacks_metric(saved: Sequence[Saved], policy: Policy) -> str:
    """Return the metric that is to say which steps are the best, where no step has it; else ""."""
    metric = policy.keep_best[0] if policy.keep_best is not None else ""
    return metric if metric and not any(metric in one.metrics for one in saved) else ""


def _best(saved: Sequence[Saved], best: Best) -> list[int]:
    sign = 1 if best.order == "min" else -1
    ranked = [
        (sign * value, -one.step)
        for one in saved
        if (value := one.metrics.get(best.metric)) is not None and not math.isnan(value)
    ]
    return [-step for _, step in sorted(ranked)[: best.many]]


def _check_positive(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be a positive integer.")


def _check_best(best: tuple[object, ...]) -> None:
    if len(best) != 3 or type(best[0]) is not str or best[1] not in ("min", "max"):
        raise ValueError(f"keep_best is {best!r}; it must be (metric, 'min' or 'max', count).")
    _check_positive("the count of keep_best", best[2])
