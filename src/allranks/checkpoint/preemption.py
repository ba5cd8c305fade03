"""Save all Checkpointers of a program before it exits on SIGTERM. All ranks save the same steps.

All ranks reach the same call of ``maybe_save`` or ``save`` (`allranks.world.notices`), and its Checkpointer saves
there. The other Checkpointers save at their own next calls, in which the program says which step their state has. If
the first Checkpointer is called again before that, the others save the last state that they saw. When all have saved,
the rank exits.

An exception that ends the program after a SIGTERM is usually a consequence of it: SIGTERM killed a process that the
loop needs. Then no rank reaches another call. All ranks save the last state that they saw, unless the program may have
changed it since: an exception within a step (``precedes_state_change``) or an optimizer step may have. Before a save
the ranks compare their steps. Without that, a rank whose loop has ended would save another step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field
from types import TracebackType
from weakref import WeakSet, ref

from allranks import agent
from allranks.checkpoint.cadence import SHORT_GRACE, CallPace
from allranks.checkpoint.detect import optimizer_steps
from allranks.errors import Mismatch, name_ranks
from allranks.failure import message_of
from allranks.gate.log import log
from allranks.world import overdue, sigterm
from allranks.world.base import World
from allranks.world.claims import Ticket
from allranks.world.exchange import Exchanger
from allranks.world.notices import Notice, Notices

# The errors that a dead worker process raises; and the seconds by which the rank's own SIGTERM may come later.
_WORKER_ERRORS = (BrokenPipeError, ConnectionResetError, EOFError, BrokenExecutor)
_WORKER_TEXTS = ("killed by signal: Terminated", "exited unexpectedly")  # torch's DataLoader
_SIGTERM_DELAY = 1.0
_NAP = 0.02
_OF_WORLD = "_preemption"
# Paths of code that only reads the next batch, computes gradients, or (JAX) returns new values.
_CHANGES_NOTHING = tuple(
    place.replace("/", os.sep)
    for place in (
        *("/torch/utils/data/", "/torchdata/", "/allranks/data/", "/grain/", "/datasets/", "/concurrent/futures/"),
        *("/torch/autograd/", "/jax/", "/jaxlib/"),
    )
)
# Functions of multiprocessing that receive from another process: usually before a step.
_MULTIPROCESSING = (f"{os.sep}multiprocessing{os.sep}", f"{os.sep}multiprocess{os.sep}")
_RECEIVES = frozenset(["get", "next", "__next__", "recv", "recv_bytes", "poll"])


@dataclass(slots=True, eq=False)
class PreemptionMember:
    """A Checkpointer or a training loop that saves when the job is preempted.

    ``answers``: whether it reacts to SIGTERM, and not only to other requests to save.
    ``seen()``: the step of the last state that it saw. ``saved()``: the last saved step.
    ``where()``: the place of the last saved step as text, or "".
    ``save_last()``: save the last state that it saw, unless it is saved. Every rank must call.
    ``release()``: release its run.
    ``calls``: the number of calls so far at which all ranks may exit.
    ``optimizer_steps``: how many optimizer steps had begun at the last of these calls.
    """

    notices: Notices
    seen: Callable[[], int | None]
    saved: Callable[[], int | None]
    save_last: Callable[[], None]
    release: Callable[[], None]
    answers: bool = True
    where: Callable[[], str] = lambda: ""
    pace: CallPace = field(default_factory=CallPace)
    calls: int = 0
    optimizer_steps: int = 0

    def begin_exit_call(self) -> Notice | None:
        """Begin the next call at which all ranks may exit. **Every rank must call.**

        Return the notice on which all ranks must act in this call, or None.
        """
        self.calls += 1
        self.optimizer_steps = optimizer_steps()
        if (seconds := self.pace.seconds_over_grace(time.monotonic())) is not None:
            log(SHORT_GRACE, seconds, self.pace.grace, 2 * seconds, level=30)
        return self.notices.arrived(self.calls)


class PreemptionSaves:
    """The Checkpointers of one rank that save before an exit.

    One is added when it is made, and removed when it is closed.
    """

    def __init__(self, world: World) -> None:
        self._world = ref(world)  # a world that is gone takes its preemption along
        self._members: list[PreemptionMember] = []
        self._saved: list[PreemptionMember] = []
        self._notice: Notice | None = None
        self._line: Exchanger | None = None
        self._rescued = False
        self._count = 0

    def notices_for_member(self, world: World) -> Notices:
        """Return the source of notices (requests such as SIGTERM) for a new Checkpointer, which must then call
        ``add_member``.
        """
        self._count += 1  # the same on all ranks, which make their Checkpointers in the same order
        return Notices(world, name=f"checkpointer/{self._count}", call="maybe_save")

    def add_member(self, member: PreemptionMember) -> None:
        """Add a member to those that are saved before an exit."""
        member.pace.grace = overdue.grace_seconds() if self._live_world().is_main and overdue.is_known() else None
        self._members.append(member)
        agent.load().set_rescue(save_after_exception)

    def remove_member(self, member: PreemptionMember) -> None:
        """Remove a member that has saved its state, or has failed."""
        self._members = [one for one in self._members if one is not member]

    def is_exit_notice(self, notice: Notice | None) -> bool:
        """Return whether this notice requires all ranks to save and exit."""
        return self._notice is not None or (notice is not None and notice.kind == "leave")

    def save_if_exiting(self, member: PreemptionMember, notice: Notice | None) -> bool:
        """Save if all ranks must exit, and exit when all members have saved. Return whether ``member`` has saved."""
        if not self.is_exit_notice(notice):
            return False
        self._notice = self._notice or notice
        assert self._notice is not None
        rest = [one for one in self._members if one not in self._saved]
        try:
            self._save_members(rest if member in self._saved else [member])
        except BaseException:
            self._release_members()
            raise
        if all(one in self._saved for one in self._members):
            sigterm.leave_after_sigterm(
                self._live_world(), self._end_runs(), because=f"{self._notice.why} on rank {self._notice.rank}"
            )
        return True

    def save_after_error(self, error: BaseException) -> bool:
        """Save the last states if ``error`` ends the program as a consequence of SIGTERM. **Every rank must call.**

        Returns whether all states are saved. If so, this rank must end with exit code 143.
        """
        if (
            self._rescued
            or not any(one.answers for one in self._members)
            or isinstance(error, Mismatch)
            or not self._has_sigterm_come(error)
        ):
            return False
        self._rescued = True
        step = self._members[0].saved()
        try:
            members = [one for one in self._members if one not in self._saved]
            unchanged = all(one.optimizer_steps == optimizer_steps() for one in members)
            self._save_members(members, is_complete=unchanged and precedes_state_change(error))
        except Exception as failed:
            since = "" if step is None else f" since step {step}"
            log("allranks: nothing was saved%s: %s", since, failed, level=40)
            return False
        log("allranks: %s: treated as a consequence of SIGTERM.", type(error).__name__, level=30)
        sigterm.expect_end(self._live_world(), self._end_runs(), because=f"SIGTERM, then {type(error).__name__}")
        return True

    def _has_sigterm_come(self, error: BaseException) -> bool:
        """Return whether any rank has received SIGTERM.

        After an error that a dead worker causes, wait a moment, because SIGTERM may arrive after the error.
        """
        is_ended = isinstance(error, _WORKER_ERRORS) or any(words in message_of(error) for words in _WORKER_TEXTS)
        until = time.monotonic() + (_SIGTERM_DELAY if is_ended else 0.0)
        while not (has_come := sigterm.has_come() or any(one.notices.is_leaving for one in self._members)):
            if time.monotonic() >= until:
                break
            time.sleep(_NAP)
        return has_come

    def _save_members(self, members: Sequence[PreemptionMember], *, is_complete: bool = True) -> None:
        """Save all these members, on all ranks the same steps. When all were tried, raise the first error.

        ``is_complete``: False if this rank's state may be changed in part; then no rank saves, and all raise Mismatch.
        """
        steps = [one.seen() for one in members] if is_complete else None
        ticket = Ticket("leave", "save before leaving", "")
        self._line = self._line or self._live_world().line("leave")
        self._line.exchange(ticket, steps, decide=_require_same_steps, timeout=overdue.grace_seconds())
        errors: list[Exception] = []
        for one in members:
            try:
                one.save_last()
            except Exception as error:
                errors.append(error)
            self._saved.append(one)
        if errors:
            raise errors[0]

    def _live_world(self) -> World:
        world = self._world()
        assert world is not None
        return world

    def _end_runs(self) -> str:
        """Release all runs; return a text that says what was saved."""
        steps = sorted({step for one in self._members if (step := one.saved()) is not None})
        places = ", ".join(filter(None, (one.where() for one in self._members)))
        to = f" to {places}" if places else ""
        self._release_members()
        return f"saved step {', '.join(map(str, steps))}{to} and left" if steps else "left, with nothing to save"

    def _release_members(self) -> None:
        for one in list(self._members):
            one.release()


def _require_same_steps(values: Sequence[object]) -> None:
    """Raise Mismatch unless all ranks are at the same steps.

    ``values``: the steps of each rank, by rank; None for a rank whose state may have changed in part.
    """
    if broken := [rank for rank, steps in enumerate(values) if steps is None]:
        raise Mismatch(
            f"{name_ranks(broken)} may have changed the state since the last complete step: the exception was raised "
            "within a step.",
            ranks=broken,
        )
    odd = [rank for rank, steps in enumerate(values) if steps != values[0]]
    if odd:
        has_come = "; ".join(f"rank {rank}: step {_steps_text(steps)}" for rank, steps in enumerate(values))
        raise Mismatch(f"the ranks' last complete steps differ, so none can be saved: {has_come}.", ranks=odd)


def _steps_text(steps: object) -> str:
    return ", ".join(map(str, steps)) if isinstance(steps, list) else str(steps)


# A world holds its own Preemption. A strong reference here would keep its Checkpointers, and so the world, for ever.
_preemptions: WeakSet[PreemptionSaves] = WeakSet()


def preemption_saves_of(world: World) -> PreemptionSaves:
    """Return the PreemptionSaves of a world; make it at the first call."""
    found: PreemptionSaves | None = vars(world).get(_OF_WORLD)
    if found is None:
        found = vars(world)[_OF_WORLD] = PreemptionSaves(world)
        _preemptions.add(found)
    return found


def save_after_exception(error: BaseException) -> bool:
    """Let the Checkpointers of every world save before an exception ends the program
    (``PreemptionSaves.save_after_error``).
    """
    rescued = [one.save_after_error(error) for one in list(_preemptions)]
    return any(rescued)


def precedes_state_change(error: BaseException) -> bool:
    """Return whether an exception was raised before its training step changed the state.

    This is True within a data loader, a queue that is read, a backward pass, or a computation of JAX. It is False
    elsewhere, because an optimizer's step or the program's own code may have changed weights in part.
    """
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if any(place in code.co_filename for place in _CHANGES_NOTHING):
            return True
        if code.co_name in _RECEIVES and any(place in code.co_filename for place in _MULTIPROCESSING):
            return True
        trace = trace.tb_next
    return False
