"""When a save is due: arithmetic on steps and seconds."""

from __future__ import annotations

from dataclasses import dataclass

from allranks.errors import AllranksError

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


@dataclass(frozen=True, slots=True)
class Cadence:
    """Save at every multiple of ``every`` steps, and ``every_minutes`` after the last save. None: not for that."""

    every: int | None = None
    every_minutes: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("every", self.every), ("every_minutes", self.every_minutes)):
            if value is not None and not value > 0:
                raise AllranksError(f"{name} is {value!r}.", remedy="It must be above 0, or None.")

    def due(self, step: int, *, before: int | None) -> bool:
        """Return whether a multiple of ``every`` is among the steps after ``before`` (the last one seen) to ``step``.

        With none seen, only ``step`` itself counts.
        """
        if self.every is None:
            return False
        return step % self.every == 0 if before is None else step // self.every > before // self.every

    def overdue(self, now: float, *, since: float) -> bool:
        """Return whether ``every_minutes`` have passed; ``now`` and ``since`` in seconds."""
        return self.every_minutes is not None and now - since >= 60 * self.every_minutes
