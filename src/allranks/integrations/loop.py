"""Implement what the integrations of all frameworks share: comparing ranks in training, and saving on preemption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from allranks.checkpoint import agree, preemption
from allranks.consistency.verify import verify
from allranks.errors import AllranksError, ContradictingSigns
from allranks.hang.start import DEFAULT_HANG_AFTER, init
from allranks.world import sigterm
from allranks.world.base import World
from allranks.world.detect import current
from allranks.world.notices import Notice, Notices
from allranks.world.progress import progress

_WHO = "Ranks(save_on_preemption=True)"


@dataclass(slots=True)
class _SharedNotices:
    """The requests (such as SIGTERM) that reach this world, shared by successive training loops of this process."""

    notices: Notices
    calls: int = 0


_votes: WeakKeyDictionary[World, _SharedNotices] = WeakKeyDictionary()


def join_world(rank: int, size: int, *, reports_hangs: bool) -> World:
    """Return the world of ``allranks.init()``, once the framework knows its ranks. **Every rank must call.**

    ``reports_hangs``: whether hangs are reported, if the world is made here. Raises ContradictingSigns if the framework
    has another rank or number of ranks than the world.
    """
    try:
        world = current()
    except AllranksError:
        world = init(hang_after=DEFAULT_HANG_AFTER if reports_hangs else 0.0)
    if (world.rank, world.size) != (rank, size):
        n = world.size
        remedy = f"Have a launcher start all ranks: allranks run -n {size} train.py."
        if size < n:
            remedy = (
                f'Give the framework all ranks (Lightning: Trainer(devices={n}, strategy="ddp")), or start one '
                "process: allranks run -n 1 train.py."
            )
        raise ContradictingSigns(
            f"rank {world.rank}: the framework trains as rank {rank} of {size}, and this process is rank {world.rank} "
            f"of {n}.",
            remedy=remedy,
        )
    return world


class TrainingLoop:
    """The checks and saves of one rank during a training.

    **Every rank must make one, and call its methods in the same order.**
    """

    def __init__(self, *, verify_every: int, save_on_preemption: bool) -> None:
        if verify_every < 0:
            raise AllranksError(
                f"verify_every={verify_every}: expected a number of steps, or 0.",
                remedy="With 0, the ranks are compared only at the start.",
            )
        self._verify_every = verify_every
        self._save_on_preemption = save_on_preemption
        self._undo: list[Callable[[], object]] = []
        self._world: World | None = None
        self._step = -1
        self._saved: tuple[int, str] | None = None

    def begin_training(self, world: World, state: Any, step: int, *, save_state: Callable[[int], str]) -> None:
        """Compare the complete state, and handle SIGTERM from now on, also in place of a framework's handler.

        All ranks then answer a SIGTERM together. ``save_state`` is called on all ranks: it saves the state after a
        step, and returns the path or address of what it saved.
        """
        self.restore_handler()  # a training before this one may have ended by an error
        if self._save_on_preemption:
            sigterm.refuse_other_handlers(_WHO)
        verify(state, step, world=world)
        self._world, self._step, self._save, self._saved = world, step, save_state, None
        if self._save_on_preemption:
            notices, departures = _votes_of(world).notices, preemption.preemption_saves_of(world)
            member = preemption.PreemptionMember(
                notices,
                seen=lambda: self._step,
                saved=lambda: self._saved[0] if self._saved else None,
                save_last=self._save_last,
                release=self.restore_handler,
                where=lambda: self._saved[1] if self._saved else "",
            )
            departures.add_member(member)
            self._undo = [
                lambda: departures.remove_member(member),
                sigterm.take_back(),
                sigterm.handle_with(lambda: notices.raise_notice("leave", "SIGTERM"), who=_WHO),
            ]

    def after_step(self, step: int, state: Callable[[], Any]) -> Notice | None:
        """Report that ``step`` is done; return the notice on which all ranks must act now, or None.

        ``state()`` is compared at each step that ``verify_every`` divides. Other calls with the same step do nothing.
        """
        if self._world is None or step == self._step:
            return None
        self._step = step
        if self._verify_every and step % self._verify_every == 0:
            verify(state(), step, world=self._world)
        return self._arrived(self._world)

    def note_save(self, step: int, save_path: str) -> None:
        """Record that the state after a step is saved, or is about to be saved, on all ranks."""
        self._saved = step, save_path

    def note_resume(self, step: int, save_path: str) -> None:
        """Record that all ranks continue from the saved state after a step."""
        self._step, self._saved = step, (step, save_path)

    def save_and_exit(self, notice: Notice) -> NoReturn:
        """Save the last step unless it is saved, and end this rank with SystemExit(143). Every rank must call."""
        world = self._world
        assert world is not None
        self._save_last()
        assert self._saved is not None
        step, where = self._saved
        done = f"saved step {step} to {where} and left"
        sigterm.leave_after_sigterm(world, done, because=f"{notice.why} on rank {notice.rank}")

    def save_after_error(self, error: BaseException) -> bool:
        """Save the last step if ``error``, which ends the training, is a consequence of SIGTERM. Every rank must call.

        Returns whether the step is saved.
        """
        return self._world is not None and preemption.preemption_saves_of(self._world).save_after_error(error)

    def end_training(self, *, still_saves: bool = False) -> None:
        """End the training. With ``still_saves``, a SIGTERM that arrives now still leads to a save."""
        notice = None if self._world is None else self._arrived(self._world)
        if notice is not None and still_saves:
            self.save_and_exit(notice)
        self.restore_handler()

    def restore_handler(self) -> None:
        """Restore the previous handler of SIGTERM. A rank may call it without the others."""
        progress.doing("")
        self._world = None
        while self._undo:
            self._undo.pop()()

    def _save_last(self) -> None:
        """Save the last step unless it is saved; return when all ranks have. An error on one rank is raised on all."""
        world, step = self._world, self._step
        assert world is not None
        error: Exception | None = None
        try:
            if self._saved is None or self._saved[0] != step:
                self._saved = step, self._save(step)
        except Exception as found:  # the others must hear of it
            error = found
        refusals = world.all_gather(agree.refusal_of(error), name="save before leaving")
        if error is not None:
            raise error
        if refused := agree.first_refusal(refusals):
            raise agree.refusal_error(refused, operation=f"rank {world.rank}: save before leaving", step=step)

    def _arrived(self, world: World) -> Notice | None:
        if not self._save_on_preemption:
            return None
        votes = _votes_of(world)
        votes.calls += 1
        return votes.notices.arrived(votes.calls)


def _votes_of(world: World) -> _SharedNotices:
    if world not in _votes:
        _votes[world] = _SharedNotices(Notices(world, name="loop"))
    return _votes[world]
