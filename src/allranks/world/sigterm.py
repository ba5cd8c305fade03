"""End a rank at SIGTERM, or let one part of allranks act on it. (jax.distributed would ignore the signal.)

A part that wants to act on SIGTERM (save the same step on all ranks, and leave) registers with ``handle_with``, and
ends with ``leave_after_sigterm``. But if SIGTERM was sent because another rank has failed, the ranks cannot act
any more, and this rank ends at once. It also ends if the action needs a store that no rank serves any more.

Exit code 143 says that nothing is lost: a save was committed, or the program has nothing that saves. If SIGTERM arrives
before the program has made its Checkpointer, the exit code is 1.

A program that handles SIGTERM itself (JAX's preemption sync point, which Orbax uses) calls ``leave_to_program()``
before ``allranks.init()``, or installs its handler before. Under ``allranks run`` the first call of JAX's
``reached_preemption_sync_point`` is enough (`allranks.agent.allranks_agent_preemption`).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NoReturn

from allranks import agent, program
from allranks.errors import AllranksError
from allranks.world import workers
from allranks.world.base import World

# How many seconds the store may take until a rank ends without it. Counted one by one: in some of them another thread
# may keep all others from running.
UNREACHABLE = 10


def _is_marked_failed() -> bool:
    """Return whether ``allranks run`` has recorded that a rank has failed."""
    control = os.environ.get("ALLRANKS_CONTROL")
    return control is not None and os.path.exists(f"{control}.failed")


@dataclass(slots=True)
class _SigtermAction:
    """What this process does at SIGTERM.

    ``is_early``: nothing that could save has been made yet. ``came``: set when SIGTERM has arrived and ``handle_with``
    acts.
    """

    left_alone: bool = False
    is_leaving: bool = False
    end: Callable[[], object] = lambda: agent.load("allranks_agent_exits").leave(program.PREEMPTED)
    doomed: Callable[[], bool] = _is_marked_failed
    is_early: bool = True
    instead: list[tuple[str, Callable[[], object]]] = field(default_factory=list)
    came: threading.Event = field(default_factory=threading.Event)

    def give(self) -> None:
        """Act on SIGTERM, or end this process if the action takes more than ``UNREACHABLE`` seconds."""
        actions = [action for _, action in self.instead]
        if self.is_leaving:
            return
        thread = threading.Thread(
            target=self._run_actions, args=(actions,), name="allranks-sigterm-answer", daemon=True
        )
        thread.start()
        for _ in range(UNREACHABLE):
            thread.join(1.0)
        if thread.is_alive():
            loses_work = bool(actions) or is_too_early()
            text = b"allranks: SIGTERM came, and the other ranks cannot be reached: nothing was saved after it.\n"
            os.write(2, text if loses_work else b"")
            agent.load("allranks_agent_exits").leave(program.NOTHING_SAVED if loses_work else program.PREEMPTED)

    def _run_actions(self, actions: list[Callable[[], object]]) -> None:
        if not actions or self.doomed():
            self.end()
        for action in actions:
            action()


_answer = _SigtermAction()


def leave_to_program() -> None:
    """Leave SIGTERM to the program (and to JAX). Call before ``allranks.init()``."""
    _answer.left_alone = True
    agent.load("allranks_agent_preemption").leave_to_jax()


def on_sigterm(end: Callable[[], object], *, doomed: Callable[[], bool]) -> None:
    """Call ``end``, in a thread, at SIGTERM, even while the main thread is in C code.

    ``doomed`` returns whether a failure of another rank is known: then ``end`` is called even if an action was
    registered with ``handle_with``. Does nothing if SIGTERM has another handler, or outside the main thread, which
    alone may set handlers.
    """
    _answer.end, _answer.doomed = end, doomed
    _start_listening()


def handle_with(action: Callable[[], object], *, who: str) -> Callable[[], None]:
    """Call ``action``, in a thread, at SIGTERM, instead of ending the rank. Return a function that undoes this.

    Call in the main thread. Does nothing if SIGTERM has another handler. ``who`` names the caller for people: see
    ``refuse_other_handlers``. If one ``who`` registers several actions, all of them are called.
    """
    refuse_other_handlers(who)
    _start_listening()
    mine = who, action
    _answer.instead.append(mine)
    _publish_answer()
    _warn_of_other_handler(who)

    def undo() -> None:
        if mine not in _answer.instead:
            return
        _answer.instead.remove(mine)
        if not has_come():  # else the launcher is to know at the end whether it led to a save
            _publish_answer()

    return undo


def _warn_of_other_handler(who: str) -> None:
    """Warn that SIGTERM will not lead to a save if the program has set its own handler."""
    handler = signal.getsignal(signal.SIGTERM)
    if callable(handler) and handler is not _handle and not _answer.left_alone and _in_main_thread():
        name = getattr(handler, "__qualname__", type(handler).__qualname__)
        print(
            f"allranks: SIGTERM leads to no save: the program's own handler {name} has it, and {who} leaves it that. "
            'Call ckpt.request("leave", "SIGTERM") in the handler, or set none.',
            file=sys.stderr,
        )


def _publish_answer() -> None:
    """Report to this rank's workers, and to the launcher, whether SIGTERM leads to a save."""
    _answer.is_early = False
    answers = bool(_answer.instead) and signal.getsignal(signal.SIGTERM) is _handle
    workers.prepare_workers()
    workers.set_answer(answers or _answer.is_leaving)
    agent.load().report("sigterm", saves=answers)


def refuse_other_handlers(who: str) -> None:
    """Raise AllranksError if a part other than ``who`` acts on SIGTERM.

    Two parts would make all ranks leave at different calls.
    """
    others = [other for other, _ in _answer.instead if other != who]
    if others:
        either = f"{who} or {others[-1]}".replace("=True", "=False")
        raise AllranksError(
            f"{who} cannot handle SIGTERM, because {others[-1]} already handles it: expected one handler.",
            remedy=f"Let only one of them handle SIGTERM: {either}.",
        )


def note_saver() -> None:
    """Record that the program has made a Checkpointer, for ``is_too_early``.

    Call it even if that Checkpointer does not act on SIGTERM.
    """
    if _answer.is_early:
        _publish_answer()


def is_too_early() -> bool:
    """Return whether a SIGTERM now is too early: the program will make a Checkpointer, but has not made it yet."""
    return _answer.is_early and program.main_makes_saver()


def has_come() -> bool:
    """Return whether SIGTERM has reached this rank and an action registered with ``handle_with`` acts on it."""
    return _answer.came.is_set()


def take_back() -> Callable[[], None]:
    """Install our SIGTERM handler again, if a framework has replaced it. Return a function that undoes this.

    Call in the main thread. Does nothing after ``leave_to_program()``.
    """
    theirs = signal.getsignal(signal.SIGTERM)
    if not _in_main_thread() or _answer.left_alone or theirs is _handle:
        return lambda: None
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _start_listening()
    return lambda: _give_to(theirs)


def _give_to(theirs: Any) -> None:
    if signal.getsignal(signal.SIGTERM) is _handle:
        signal.signal(signal.SIGTERM, theirs)


def leave_after_sigterm(world: World, done: str, *, because: str) -> NoReturn:
    """End this rank normally after SIGTERM: with exit code 143, which is no failure. **Every rank must call.**

    ``done`` and ``because`` are for the person who reads how the job ended, e.g. "saved step 7 and left" and "SIGTERM
    on rank 2". Without ``allranks run``, rank 0 prints them. Raises SystemExit.
    """
    expect_end(world, done, because=because)
    raise SystemExit(program.PREEMPTED)


def expect_end(world: World, done: str, *, because: str) -> None:
    """Record that this rank is about to end normally, with exit code 143. From now on it ignores SIGTERM."""
    _answer.is_leaving = True
    workers.set_answer(True)
    agent.load().leave_in_order(program.PREEMPTED, done, because)
    if world.is_main and "ALLRANKS_CONTROL" not in os.environ:
        print(f"allranks: {done} ({'SIGTERM' if has_come() else because})", file=sys.stderr)


def _handle(_: int, __: FrameType | None) -> None:
    """Handle SIGTERM in Python.

    This runs when the main thread next can; the wake-up byte in the pipe is written at once.
    """
    if _answer.instead:
        _answer.came.set()
    os.write(_pipe[1], bytes([signal.SIGTERM]))


_NO_PIPE = (-1, -1)
_pipe: tuple[int, int] = _NO_PIPE


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _start_listening() -> None:
    global _pipe
    if _answer.left_alone or not _in_main_thread():
        return
    if signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, workers.worker_sigterm_handler):
        return
    if _pipe != _NO_PIPE:  # the thread is there: only the handler was taken away
        signal.signal(signal.SIGTERM, _handle)
        return
    _pipe = os.pipe()
    os.set_blocking(_pipe[1], False)
    signal.signal(signal.SIGTERM, _handle)
    theirs = signal.set_wakeup_fd(_pipe[1], warn_on_full_buffer=False)
    if theirs != -1:
        signal.set_wakeup_fd(theirs)
    os.register_at_fork(after_in_child=_in_child)
    threading.Thread(target=_wait_for_signal, args=(_pipe[0],), name="allranks-sigterm", daemon=True).start()


def _wait_for_signal(readable: int) -> None:
    while True:
        if signal.SIGTERM in os.read(readable, 64) and signal.getsignal(signal.SIGTERM) is _handle:
            _answer.give()


def _in_child() -> None:
    """Detach a forked child from this pipe. The child then dies of its SIGTERM, unless it is a worker (`workers`)."""
    global _pipe
    ours, _pipe = _pipe, _NO_PIPE
    if (fd := signal.set_wakeup_fd(-1)) != ours[1]:
        signal.set_wakeup_fd(fd)
    if signal.getsignal(signal.SIGTERM) is _handle:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
