"""Decide when a save is due: arithmetic on steps and seconds."""

from __future__ import annotations

from dataclasses import dataclass

from allranks.arguments import expect, is_count, is_positive

SHORT_GRACE = (
    "allranks: %.0f s passed between two calls of maybe_save, and after a SIGTERM the job has %g s: it may be killed "
    "before it can save. Give it more time (allranks run --grace %.0f), or call maybe_save more often (same step)."
)


@dataclass(slots=True)
class Pace:
    """The time that the program takes between two calls, compared with ``grace`` (seconds after a SIGTERM; None:
    unknown).
    """

    grace: float | None = None
    last: float | None = None
    reported: bool = False

    def overtime(self, now: float) -> float | None:
        """Note a call. Return the seconds since the last one if they are more than the grace: once, then None."""
        before, self.last = self.last, now
        if self.reported or self.grace is None or before is None or now - before <= self.grace:
            return None
        self.reported = True
        return now - before


@dataclass(slots=True)
class Timer:
    """Saves that are ``minutes`` apart (None: no such saves).

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
        """Note a call at ``now`` (seconds). Return whether the next call, if it takes as long as this one, is to
        save."""
        coming = now + (now - self.last if self.last is not None else 0.0)
        self.last = now
        return self.minutes is not None and coming - self.saved >= 60 * self.minutes


@dataclass(frozen=True, slots=True)
class Cadence:
    """Saves at every multiple of ``every`` steps (None: no such saves). ``name`` is the argument's name in errors."""

    every: int | None = None
    name: str = "every"

    def __post_init__(self) -> None:
        expect(self.every is None or is_count(self.every), self.name, self.every, "an int above 0, or None")

    def due(self, step: int, *, before: int | None) -> bool:
        """Return whether there is a multiple of ``every`` after the step ``before`` and up to ``step``.

        ``before`` is the last step that was seen. If it is None, only ``step`` itself counts.
        """
        if self.every is None:
            return False
        return step % self.every == 0 if before is None else step // self.every > before // self.every
