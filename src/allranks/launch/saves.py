"""Decide whether a SIGTERM led to a save, from the ranks' reports of their checkpoints."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from allranks.errors import name_ranks
from allranks.evidence import first_of
from allranks.failure import Failure, shell_exit_code
from allranks.launch.events import RankLeft, SaveReport
from allranks.launch.first_failure import RankExit
from allranks.program import NOT_YET, NOTHING_SAVED, PREEMPTED

# The exit code of a job that ended because of SIGTERM, and lost nothing.


@dataclass(slots=True)
class Saves:
    """What the launcher knows about the saves of a job.

    - ``makes_saver``: returns whether the program will make a Checkpointer. ``is_made``: it has made one.
    - ``saving_ranks``: the ranks that answer SIGTERM by a save. ``step``: the last saved step, or None.
    - ``terminated_at``: when the launcher received the signal to end, on the supervisor's clock in seconds, or None.
    - ``failures``: the failures after that signal.
    - ``killed``: why the launcher killed ranks, as text ("when the grace was over").
    - ``exit_codes``: the exit code of each rank that leaves normally. ``why``: what these ranks did before.
    """

    makes_saver: Callable[[], bool] = lambda: False
    is_made: bool = False
    saving_ranks: set[int] = field(default_factory=set)
    step: int | None = None
    terminated_at: float | None = None
    failures: list[Failure] = field(default_factory=list)
    killed: str = "from outside"
    exit_codes: dict[int, int] = field(default_factory=dict)
    why: str = ""

    def note(self, event: SaveReport) -> None:
        """Record a rank's report about its saves."""
        if event.step is not None:
            self.step = event.step
        if event.saves_on_sigterm is not None:
            self.is_made = True
            (self.saving_ranks.add if event.saves_on_sigterm else self.saving_ranks.discard)(event.rank)

    def leave(self, event: RankLeft) -> None:
        """Record that a rank is about to leave normally, together with all other ranks."""
        self.exit_codes[event.rank] = event.exit_code
        self.why = event.why if self.terminated_at is not None or not event.origin else f"{event.why} ({event.origin})"

    def is_repeated(self, now: float, seconds: float) -> bool:
        """Return whether the launcher received its first signal to end less than ``seconds`` ago."""
        return self.terminated_at is not None and now < self.terminated_at + seconds

    def expected_save(self, ranks: Sequence[int], grace: float) -> str:
        """Return a text that says that the ranks are to save and leave.

        Return "" if the launcher received no signal to end, or if no rank saves.
        """
        if self.terminated_at is None or not self.saving_ranks.intersection(ranks):
            return ""
        return f"{name_ranks(ranks)} {'is' if len(ranks) == 1 else 'are'} to save and leave within {grace:g} s"

    def with_save_outcome(self, failure: Failure) -> Failure:
        """Return the failure that ends the job.

        Its exit code changes if SIGTERM arrived before the Checkpointer was made.
        """
        if failure.exit_code != PREEMPTED or not self.is_before_saver():
            return failure
        return replace(failure, what=f"{failure.what}; {NOT_YET}", exit_code=NOTHING_SAVED)

    def is_before_saver(self) -> bool:
        """Return whether the program will make a Checkpointer, and no rank has made one yet."""
        return not self.is_made and self.makes_saver()

    def outcome(self, exits: Mapping[int, RankExit], code: int | None) -> tuple[str, int]:
        """Return what was saved or lost, as text, and the exit code of a job in which no rank has failed.

        ``code`` is the launcher's exit code, or None if the ranks decide it.
        """
        if not self.exit_codes and (lost := self._lost_steps(exits)):
            return lost
        return self.why, max(self.exit_codes.values(), default=0) if code is None else code

    def _lost_steps(self, exits: Mapping[int, RankExit]) -> tuple[str, int] | None:
        if self.terminated_at is None:
            return None
        in_order = bool(exits) and all(end.wait_code == 0 for end in exits.values())
        if not in_order and self.is_before_saver():
            return NOT_YET, NOTHING_SAVED
        # A rank that got nothing but SIGKILL was still starting when the job was stopped: it has lost nothing.
        killed = [
            rank
            for rank, end in sorted(exits.items())
            if end.wait_code == -signal.SIGKILL and end.sent_signals != (signal.SIGKILL,)
        ]
        unsaved = [rank for rank in sorted(self.saving_ranks & exits.keys()) if exits[rank].wait_code != 0]
        since = "after it" if self.step is None else f"since step {self.step}"
        lost = f"nothing was saved {since}: " if unsaved else ""
        if killed:
            were = "was" if len(killed) == 1 else "were"
            return f"{lost}{name_ranks(killed)} {were} killed {self.killed}", 128 + signal.SIGKILL
        if not unsaved:
            return None
        codes = [shell_exit_code(exits[rank].wait_code) for rank in unsaved]
        why = f": {first_of(self.failures).headline()}" if self.failures else ""
        return f"{lost.removesuffix(': ')}{why}", max((code for code in codes if code != PREEMPTED), default=1)
