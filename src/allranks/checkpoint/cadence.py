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
    """Measures the time between two calls, and compares it with ``grace``.

    ``grace``: the seconds that the job has after a SIGTERM; None if unknown.
    """

    grace: float | None = None
    last: float | None = None
    reported: bool = False

    def overtime(self, now: float) -> float | None:
        """Record a call at ``now`` (seconds). Return the seconds since the last call if they exceed ``grace``.

        Returns None otherwise, and after the first time.
        """
        before, self.last = self.last, now
        if self.reported or self.grace is None or before is None or now - before <= self.grace:
            return None
        self.reported = True
        return now - before


@dataclass(slots=True)
class MinuteTimer:
    """Saves at intervals of ``minutes`` (None: no such saves).

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

    def is_due_next(self, now: float) -> bool:
        """Record a call at ``now`` (seconds). Return whether a save is due at the next call, if it takes as long."""
        coming = now + (now - self.last if self.last is not None else 0.0)
        self.last = now
        return self.minutes is not None and coming - self.saved >= 60 * self.minutes


@dataclass(frozen=True, slots=True)
class StepCadence:
    """Saves at every multiple of ``every`` steps (None: no such saves). ``name``: the argument's name for errors."""

    every: int | None = None
    name: str = "every"

    def __post_init__(self) -> None:
        expect(self.every is None or is_count(self.every), self.name, self.every, "an int above 0, or None")

    def due(self, step: int, *, before: int | None) -> bool:
        """Return whether a save is due: a multiple of ``every`` is after the step ``before``, and not after ``step``.

        ``before``: the last step that was seen. If it is None, only ``step`` itself counts.
        """
        if self.every is None:
            return False
        return step % self.every == 0 if before is None else step // self.every > before // self.every
