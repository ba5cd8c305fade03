"""SIGTERM ends a rank. By itself it would not: jax.distributed swallows it, and waits for a preemption notice's use.

A part of ours that wants to act on it (save the same step on all ranks, and leave) takes it over with ``instead``, and
ends with ``leave``. But where SIGTERM comes because another rank has failed, nobody is left to act with, and the rank
ends at once.

Who wants to act on SIGTERM by himself (JAX's preemption sync point, which Orbax uses) calls ``leave_alone()`` before
``allranks.init()``, or has a handler of his own installed by then.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NoReturn

from allranks import agent
from allranks.errors import AllranksError

EXIT_CODE = 128 + signal.SIGTERM


def _launcher_says_so() -> bool:
    """Whether ``allranks run`` has left its sign that a rank has failed."""
    control = os.environ.get("ALLRANKS_CONTROL")
    return control is not None and os.path.exists(f"{control}.failed")


@dataclass(slots=True)
class _Answer:
    """What this process does when SIGTERM comes."""

    left_alone: bool = False
    end: Callable[[], object] = lambda: agent.load("allranks_agent_exits").leave(EXIT_CODE)
    doomed: Callable[[], bool] = _launcher_says_so
    instead: list[tuple[str, Callable[[], object]]] = field(default_factory=list)

    def give(self) -> None:
        if self.instead and not self.doomed():
            self.instead[-1][1]()
        else:
            self.end()


_answer = _Answer()


def leave_alone() -> None:
    """Leave SIGTERM to the program (and to JAX). Call before ``allranks.init()``."""
    _answer.left_alone = True


def on_sigterm(end: Callable[[], object], *, doomed: Callable[[], bool]) -> None:
    """Have ``end`` called, in a thread, when SIGTERM comes: wherever the main thread is, in C too.

    ``doomed`` says whether a failure of another rank is known: then ``end`` is called even where ``instead`` is in
    force. Nothing is done where SIGTERM is somebody else's, or outside the main thread, which alone may say what
    signals do.
    """
    _answer.end, _answer.doomed = end, doomed
    _listen()


def instead(action: Callable[[], object], *, who: str) -> Callable[[], None]:
    """Have ``action`` called, in a thread, when SIGTERM comes, in place of the rank's end; return what undoes that.

    Call in the main thread. Nothing is done where SIGTERM is somebody else's. ``who`` is for a person: see ``refuse``.
    """
    refuse(who)
    _listen()
    mine = who, action
    _answer.instead.append(mine)
    return lambda: _answer.instead.remove(mine)


def refuse(who: str) -> None:
    """Raise if another part of ours than ``who`` has SIGTERM: each would have all ranks leave at a call of its own."""
    others = [other for other, _ in _answer.instead if other != who]
    if others:
        either = f"{who} or {others[-1]}".replace("=True", "=False")
        raise AllranksError(
            f"{who} is to answer SIGTERM, but {others[-1]} does already, and would never hear of it.",
            remedy=f"Let one of them answer it: {either}.",
        )


def take_back() -> Callable[[], None]:
    """Have SIGTERM be ours, though a framework has put a handler over ours; return what gives it back to that.

    Call in the main thread. Nothing is done after ``leave_alone()``.
    """
    theirs = signal.getsignal(signal.SIGTERM)
    if not _in_main_thread() or _answer.left_alone or theirs is _came:
        return lambda: None
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _listen()
    return lambda: _give_to(theirs)


def _give_to(theirs: Any) -> None:
    if signal.getsignal(signal.SIGTERM) is _came:
        signal.signal(signal.SIGTERM, theirs)


def leave(why: str) -> NoReturn:
    """End this rank, in order, as SIGTERM asks: with exit code 143, which is no failure. **Every rank must call.**

    ``why`` is for the person who reads how the job ended. Raises SystemExit.
    """
    agent.load().part(EXIT_CODE, why)
    raise SystemExit(EXIT_CODE)


def _came(_: int, __: FrameType | None) -> None:
    """Python runs this when its main thread next has a moment; the byte in the pipe comes at once."""
    os.write(_pipe[1], bytes([signal.SIGTERM]))


_NO_PIPE = (-1, -1)
_pipe: tuple[int, int] = _NO_PIPE


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _listen() -> None:
    global _pipe
    if _answer.left_alone or not _in_main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return
    if _pipe != _NO_PIPE:  # the thread is there: only the handler was taken away
        signal.signal(signal.SIGTERM, _came)
        return
    _pipe = os.pipe()
    os.set_blocking(_pipe[1], False)
    signal.signal(signal.SIGTERM, _came)
    theirs = signal.set_wakeup_fd(_pipe[1], warn_on_full_buffer=False)
    if theirs != -1:
        signal.set_wakeup_fd(theirs)
    os.register_at_fork(after_in_child=_in_child)
    threading.Thread(target=_wait, args=(_pipe[0],), name="allranks-sigterm", daemon=True).start()


def _wait(readable: int) -> None:
    while True:
        if signal.SIGTERM in os.read(readable, 64) and signal.getsignal(signal.SIGTERM) is _came:
            _answer.give()


def _in_child() -> None:
    """A forked child (DataLoader worker) must die of its own SIGTERM, and not tell this pipe."""
    global _pipe
    _pipe = _NO_PIPE
    if signal.getsignal(signal.SIGTERM) is _came:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
