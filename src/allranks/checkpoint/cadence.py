"""When a save is due: arithmetic on steps and seconds."""

from __future__ import annotations

from dataclasses import dataclass

from allranks.arguments import expect, is_count, is_positive

SHORT_GRACE = (
    "allranks: %.0f s passed between two calls of maybe_save, and after a SIGTERM the job has %g s: it may be killed "
    "before it can save. Give it more time (allranks run --grace %.0f), or call maybe_save more often (same step)."
)


@dataclass(slots=True)
class Pace:
    """How long the program takes from one call to the next, against the ``grace`` (seconds; None: unknown)."""

    grace: float | None = None
    last: float | None = None
    reported: bool = False

    def overtime(self, now: float) -> float | None:
        """Take note of a call; return the seconds since the one before if they are more than the grace, once."""
        before, self.last = self.last, now
        if self.reported or self.grace is None or before is None or now - before <= self.grace:
            return None
        self.reported = True
        return now - before


@dataclass(slots=True)
class Timer:
    """Saves ``minutes`` apart (None: none). Ranks agree on a call to come, so each is asked for at the call before."""

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
        """Take note of a call; return whether the next one, if it takes as long as this, is to save. In seconds."""
        coming = now + (now - self.last if self.last is not None else 0.0)
        self.last = now
        return self.minutes is not None and coming - self.saved >= 60 * self.minutes


@dataclass(frozen=True, slots=True)
class Cadence:
    """Save at every multiple of ``every`` steps. None: not for that. ``name`` is the argument's."""

    every: int | None = None
    name: str = "every"

    def __post_init__(self) -> None:
        expect(self.every is None or is_count(self.every), self.name, self.every, "an int above 0, or None")

    def due(self, step: int, *, before: int | None) -> bool:
        """Return whether a multiple of ``every`` is among the steps after ``before`` (the last one seen) to ``step``.

        With none seen, only ``step`` itself counts.
        """
        if self.every is None:
            return False
        return step % self.every == 0 if before is None else step // self.every > before // self.every
