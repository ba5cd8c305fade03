"""Whether a SIGTERM led to a save, from what the ranks have reported of their checkpoints."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from allranks.errors import name_ranks
from allranks.evidence import first_of
from allranks.failure import Failure, shell_exit_code
from allranks.launch.events import RankLeft, SaveReport
from allranks.launch.verdict import Ending
from allranks.program import NOT_YET, NOTHING_SAVED

# The exit code of a job that was told to end, and did: nothing is lost.
IN_ORDER = 128 + signal.SIGTERM


@dataclass(slots=True)
class Saves:
    """``answering`` are the ranks that answer SIGTERM by a save, ``step`` is the last that was saved (None: none).

    ``makes_saver`` finds out whether the program is to make what saves; ``is_made``: it has. ``asked_at`` is when the
    launcher was asked to end, in seconds of the supervisor's clock (None: it was not), and ``failures`` are those that
    came after that. ``killed`` says when the launcher has killed ranks. ``left`` are the ranks that
    leave in order, with their exit codes; ``why`` says what they did before.
    """

    makes_saver: Callable[[], bool] = lambda: False
    is_made: bool = False
    answering: set[int] = field(default_factory=set)
    step: int | None = None
    asked_at: float | None = None
    failures: list[Failure] = field(default_factory=list)
    killed: str = "from outside"
    left: dict[int, int] = field(default_factory=dict)
    why: str = ""

    def note(self, event: SaveReport) -> None:
        """Take what a rank reports."""
        if event.step is not None:
            self.step = event.step
        if event.answers is not None:
            self.is_made = True
            (self.answering.add if event.answers else self.answering.discard)(event.rank)

    def leave(self, event: RankLeft) -> None:
        """Take note that a rank is about to leave, in order, with all others."""
        self.left[event.rank] = event.exit_code
        self.why = event.why if self.asked_at is not None or not event.origin else f"{event.why} ({event.origin})"

    def was_just_asked(self, now: float, seconds: float) -> bool:
        """Return whether the launcher was first asked to end less than so many seconds ago."""
        return self.asked_at is not None and now < self.asked_at + seconds

    def awaited(self, ranks: Sequence[int], grace: float) -> str:
        """Return what is to happen, where the launcher was asked to end, and these ranks answer by a save; else ""."""
        if self.asked_at is None or not self.answering.intersection(ranks):
            return ""
        return f"{name_ranks(ranks)} {'is' if len(ranks) == 1 else 'are'} to save and leave within {grace:g} s"

    def judged(self, failure: Failure) -> Failure:
        """Return a failure as it ends the job: with another exit code where a SIGTERM to one rank came too early."""
        if failure.exit_code != IN_ORDER or not self.is_early():
            return failure
        return replace(failure, what=f"{failure.what}; {NOT_YET}", exit_code=NOTHING_SAVED)

    def is_early(self) -> bool:
        """Return whether the program is to make what saves, and no rank has yet."""
        return not self.is_made and self.makes_saver()

    def outcome(self, endings: Mapping[int, Ending], code: int | None) -> tuple[str, int]:
        """Return what was saved or lost, in words, and the exit code of a job in which no rank has failed.

        ``code`` is what the launcher would end with, None where that is for the ranks to say.
        """
        if not self.left and (lost := self._lost(endings)):
            return lost
        return self.why, max(self.left.values(), default=0) if code is None else code

    def _lost(self, endings: Mapping[int, Ending]) -> tuple[str, int] | None:
        if self.asked_at is None:
            return None
        in_order = bool(endings) and all(end.wait_code == 0 for end in endings.values())
        if not in_order and self.is_early():
            return NOT_YET, NOTHING_SAVED
        killed = [rank for rank, end in sorted(endings.items()) if end.wait_code == -signal.SIGKILL]
        unsaved = [rank for rank in sorted(self.answering & endings.keys()) if endings[rank].wait_code != 0]
        since = "after it" if self.step is None else f"since step {self.step}"
        lost = f"nothing was saved {since}: " if unsaved else ""
        if killed:
            were = "was" if len(killed) == 1 else "were"
            return f"{lost}{name_ranks(killed)} {were} killed {self.killed}", 128 + signal.SIGKILL
        if not unsaved:
            return None
        codes = [shell_exit_code(endings[rank].wait_code) for rank in unsaved]
        why = f": {first_of(self.failures).headline()}" if self.failures else ""
        return f"{lost.removesuffix(': ')}{why}", max((code for code in codes if code != IN_ORDER), default=1)
