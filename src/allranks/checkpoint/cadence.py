"""Decide when a save is due, from steps and seconds."""

from __future__ import annotations

from dataclasses import dataclass

from allranks.arguments import expect, is_count, is_positive

SHORT_GRACE = (
    "allranks: %.0f s passed between two calls of maybe_save, and after a SIGTERM the job has %g s: it may be killed "
    "before it can save. Give it more time (allranks run --grace %.0f), or call maybe_save more often (same step)."
)


@dataclass(slots=True)
class CallPace:
    """Measures the seconds between successive calls, and compares them with ``grace``.

    ``grace``: the seconds that the job has after a SIGTERM; None if unknown.
    """

    grace: float | None = None
    last: float | None = None
    reported: bool = False

    def seconds_over_grace(self, now_seconds: float) -> float | None:
        """Record a call at ``now_seconds`` (seconds). Return the seconds since the last call if they exceed ``grace``.

        Returns None otherwise, and after the first time.
        """
        before, self.last = self.last, now_seconds
        if self.reported or self.grace is None or before is None or now_seconds - before <= self.grace:
            return None
        self.reported = True
        return now_seconds - before


@dataclass(slots=True)
class MinuteTimer:
    """Decides when a save is due that is made every ``minutes`` (None: never).

    All ranks must save at the same call, so a save is requested one call ahead.
    """

    minutes: float | None
    saved: float
    last: float | None = None

    def __post_init__(self) -> None:
        expect(
            self.minutes is None or is_positive(self.minutes),
            "every_minutes",
            self.minutes,
            "a number above 0, or None",
        )

    def is_due_next(self, now_seconds: float) -> bool:
        """Record a call at ``now_seconds`` (seconds).

        Return whether a save is due at the next call, if that call comes after the same time as this one.
        """
        coming = now_seconds + (now_seconds - self.last if self.last is not None else 0.0)
        self.last = now_seconds
        return self.minutes is not None and coming - self.saved >= 60 * self.minutes


@dataclass(frozen=True, slots=True)
class StepCadence:
    """Decides when a save is due at multiples of ``every`` steps (None: never).

    ``name``: the argument's name in errors.
    """

    every: int | None = None
    name: str = "every"

    def __post_init__(self) -> None:
        expect(self.every is None or is_count(self.every), self.name, self.every, "an int above 0, or None")

    def is_save_due(self, step: int, *, previous_step: int | None) -> bool:
        """Return whether a save is due: a multiple of ``every`` is after the step ``previous_step``, and not after
        ``step``.

        ``previous_step``: the last step that was seen. If it is None, only ``step`` itself counts.
        """
        if self.every is None:
            return False
        return step % self.every == 0 if previous_step is None else step // self.every > previous_step // self.every
