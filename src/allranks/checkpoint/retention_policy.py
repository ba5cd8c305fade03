"""Choose which checkpoints of a run are removed, completely or except for some items; never the newest."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from allranks.arguments import expect, is_count, several


class BestCheckpoints(NamedTuple):
    """Keep the ``many`` checkpoints with the lowest (``min``) or the highest (``max``) value of ``metric``."""

    metric: str
    order: Literal["min", "max"]
    many: int = 1


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Keep the newest ``keep_last`` steps (None: all), every multiple of ``keep_every``, and the best steps.

    Raises ValueError for a combination that has no meaning.
    """

    keep_last: int | None = None
    keep_every: int | None = None
    keep_best: BestCheckpoints | tuple[str, Literal["min", "max"], int] | None = None

    def __post_init__(self) -> None:
        for name in ("keep_last", "keep_every"):
            if getattr(self, name) is not None:
                _check_positive(name, getattr(self, name))
        if self.keep_best is not None:
            _check_best(self.keep_best)
        if self.keep_last is None and (self.keep_every is not None or self.keep_best is not None):
            raise ValueError(
                "keep_every and keep_best need keep_last: without keep_last every step is kept. "
                "Set keep_last too (at least keep_last=1)."
            )


@dataclass(frozen=True, slots=True)
class Saved:
    """The properties of a saved checkpoint on which a policy decides. ``items``: the top-level keys of its state."""

    step: int
    metrics: Mapping[str, float]
    items: frozenset[str] = frozenset()


# A policy: returns the steps to keep of these checkpoints, which are in ascending order.
Keep = Callable[[Sequence[Saved]], Iterable[int]]


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """What retention removes. ``remove``: steps, in ascending order. ``reduce``: by step, the items that stay."""

    remove: tuple[int, ...]
    reduce: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


def keep_last(many: int) -> Keep:
    """Return a policy that keeps the ``many`` newest checkpoints."""
    _check_positive("keep_last", many)
    return lambda saved: sorted(one.step for one in saved)[-many:]


def keep_every(steps: int) -> Keep:
    """Return a policy that keeps each step that is a multiple of ``steps``."""
    _check_positive("keep_every", steps)
    return lambda saved: [one.step for one in saved if one.step % steps == 0]


@dataclass(frozen=True, slots=True)
class KeepBest:
    """A policy that keeps the best checkpoints. It keeps all checkpoints if none has the metric."""

    best: BestCheckpoints

    def __call__(self, saved: Sequence[Saved]) -> list[int]:
        known = any(self.best.metric in one.metrics for one in saved)
        return _best_steps(saved, self.best) if known else [one.step for one in saved]


def keep_best(metric: str, order: Literal["min", "max"], many: int = 1) -> Keep:
    """Return a policy that keeps the ``many`` checkpoints with the lowest or highest value of ``metric``.

    Of equal values, the later checkpoint is kept.
    """
    _check_best((metric, order, many))
    return KeepBest(BestCheckpoints(metric, order, many))


def combine_policies(policies: Keep | Iterable[Keep], *, name: str = "keep") -> Keep:
    """Return a policy that keeps what at least one of ``policies`` keeps. Raises BadArgument if one is no policy."""
    if callable(policies):
        return policies
    every = several(policies) or ()
    expect(every and all(map(callable, every)), name, policies, "a policy, or a list of policies: keep_last(3)")
    return lambda saved: {step for policy in every for step in policy(saved)}


def decide_retention(
    saved_steps: Sequence[Saved],
    policy: RetentionPolicy | Keep,
    items: Mapping[str, Keep],
    *,
    kept_steps: Collection[int] = (),
) -> RetentionDecision:
    """Return which checkpoints to remove or reduce.

    ``policy``: keeps complete checkpoints. ``items``: for each item, a policy that keeps this item of other
    checkpoints.

    The newest checkpoint and those in ``kept_steps`` stay as they are.
    """
    saved_steps = sorted(saved_steps, key=lambda one: one.step)
    if isinstance(policy, RetentionPolicy):
        gone = set(choose_removed_steps(saved_steps, policy))
    else:
        gone = {one.step for one in saved_steps} - _checked_steps(policy(saved_steps), saved_steps)
    gone -= {max((one.step for one in saved_steps), default=-1), *kept_steps}
    of_item = {name: [one for one in saved_steps if name in one.items] for name in items}
    kept = {name: _checked_steps(keep(of_item[name]), of_item[name]) for name, keep in items.items()}
    reduce = {
        one.step: tuple(name for name, steps in kept.items() if one.step in steps and name in one.items)
        for one in saved_steps
        if one.step in gone
    }
    return RetentionDecision(
        tuple(sorted(step for step, names in reduce.items() if not names)),
        {step: names for step, names in sorted(reduce.items()) if names},
    )


def _checked_steps(kept: Iterable[object], saved: Sequence[Saved]) -> set[int]:
    """Return the result of a policy as a set of steps, after checking it against the steps ``saved``.

    Raises ValueError if the policy returned something that is not a step, or no step of ``saved`` at all.
    """
    found, there = [*kept], {one.step for one in saved}
    odd = [one for one in found if type(one) is bool or not isinstance(one, numbers.Integral)]
    steps = {one for one in there if one in found}
    if odd or (found and not steps):
        raise ValueError(
            f"the policy returned {(odd or found)[:3]}: expected steps of the checkpoints that were "
            "passed to the policy"
        )
    return steps


def choose_removed_steps(saved_steps: Sequence[Saved], policy: RetentionPolicy) -> tuple[int, ...]:
    """Return the steps to remove, in ascending order. Of equal metrics the later step is better; NaN is never best."""
    if policy.keep_last is None:
        return ()
    steps = sorted({one.step for one in saved_steps})
    kept = set(steps[-policy.keep_last :])
    if policy.keep_every is not None:
        kept.update(step for step in steps if step % policy.keep_every == 0)
    if policy.keep_best is not None:
        kept.update(_best_steps(saved_steps, BestCheckpoints(*policy.keep_best)))
    return tuple(step for step in steps if step not in kept)


def metric_of(policy: object) -> str:
    """Return the name of the metric by which a policy chooses the best steps; "" if it uses none."""
    if isinstance(policy, RetentionPolicy):
        return policy.keep_best[0] if policy.keep_best is not None else ""
    return policy.best.metric if isinstance(policy, KeepBest) else ""


def missing_metric(saved_steps: Sequence[Saved], policy: object) -> str:
    """Return the name of the policy's metric if it has one that no saved step has; "" otherwise."""
    metric = metric_of(policy)
    return metric if metric and not any(metric in one.metrics for one in saved_steps) else ""


def _best_steps(saved: Sequence[Saved], best: BestCheckpoints) -> list[int]:
    sign = 1 if best.order == "min" else -1
    ranked = [
        (sign * value, -one.step)
        for one in saved
        if (value := one.metrics.get(best.metric)) is not None and not math.isnan(value)
    ]
    return [-step for _, step in sorted(ranked)[: best.many]]


def _check_positive(name: str, value: object) -> None:
    expect(is_count(value), name, value, "an int above 0")


def _check_best(best: object) -> None:
    said = several(best) or ()
    fits = len(said) == 3 and type(said[0]) is str and said[1] in ("min", "max") and is_count(said[2])
    expect(fits, "keep_best", best, "(metric, 'min' or 'max', an int above 0)")
