"""Whether a SIGTERM led to a save, from what the ranks have reported of their checkpoints."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from allranks.errors import name_ranks
from allranks.evidence import first_of
from allranks.failure import Failure, shell_exit_code
from allranks.launch.events import SaveReport
from allranks.launch.verdict import Ending

# The exit code of a job that was told to end, and did: nothing is lost.
IN_ORDER = 128 + signal.SIGTERM


@dataclass(slots=True)
class Saves:
    """``answering`` are the ranks that answer SIGTERM by a save, ``step`` is the last that was saved (None: none).

    ``asked_at`` is when the launcher was asked to end, in seconds of the supervisor's clock (None: it was not), and
    ``failures`` are those that came after that.
    """

    answering: set[int] = field(default_factory=set)
    step: int | None = None
    asked_at: float | None = None
    failures: list[Failure] = field(default_factory=list)

    def note(self, event: SaveReport) -> None:
        """Take what a rank reports."""
        if event.step is not None:
            self.step = event.step
        if event.answers is not None:
            (self.answering.add if event.answers else self.answering.discard)(event.rank)

    def was_just_asked(self, now: float, seconds: float) -> bool:
        """Return whether the launcher was first asked to end less than so many seconds ago."""
        return self.asked_at is not None and now < self.asked_at + seconds

    def lost(self, endings: Mapping[int, Ending]) -> tuple[str, int] | None:
        """Return what is lost, in words, and the job's exit code; None where nothing is. No rank has left in order."""
        unsaved = [rank for rank in sorted(self.answering & endings.keys()) if endings[rank].wait_code != 0]
        if self.asked_at is None or not unsaved:
            return None
        lost = "nothing was saved after it" if self.step is None else f"nothing was saved since step {self.step}"
        killed = [rank for rank in unsaved if endings[rank].wait_code == -signal.SIGKILL]
        if killed:
            how = f"{name_ranks(killed)} {'was' if len(killed) == 1 else 'were'} killed before the save"
            return f"{lost}: {how}", 128 + signal.SIGKILL
        codes = [shell_exit_code(endings[rank].wait_code) for rank in unsaved]
        why = f": {first_of(self.failures).headline()}" if self.failures else ""
        return f"{lost}{why}", max((code for code in codes if code != IN_ORDER), default=1)
