"""Observe the training thread from another thread: what it does, and since when it has made no progress.

Only the training thread can give these signs of progress:

- Its stamps (``world.progress``), and the collectives that torch counts. While there is a stamp, only these count.
- A change of its Python stack.
- Another wait that the kernel has seen it begin. So a loop that makes the same call at every snapshot is not taken for
  one long call.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from allranks.hang import kernel, stacks
from allranks.hang.callee import waits_for_device
from allranks.hang.calls import CollectivesInFlight
from allranks.hang.detect import collectives_in_flight, describe_group, in_lockstep, is_before_first_step, peer_of
from allranks.hang.heartbeat import Heartbeat
from allranks.hang.sites import Frame, classify_stack, innermost_users_line, stage_of_stack
from allranks.hang.stragglers import BusyTime
from allranks.launch.hang_limits import CHECKPOINT, FIRST_STEP, STEP
from allranks.world.progress import CHECKPOINTS, PYTHON, WAITS, Progress, progress

# Over how many looks the use of cores and files is taken.
_LOOKS = 10
# Threads that Python did not start.
_AUTOGRADS = "Dummy-"
# Calls of torch in which two ranks meet.
_PAIRED = {"send": "to", "recv": "from", "isend": "to", "irecv": "from"}


class TrainingThread:
    """Observe one thread of this process (default: the main one).

    Only one thread at a time may use this object. No method waits.
    """

    def __init__(
        self,
        rank: int,
        *,
        thread: threading.Thread | None = None,
        of: Progress = progress,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rank = rank
        self._thread = thread or threading.main_thread()
        # Python does not know the main thread's new one after a fork, and this is one of ``allranks run``.
        self._native = os.getpid() if self._thread is threading.main_thread() else self._thread.native_id or 0
        self._progress = of
        self._now = now
        self._signs: tuple[Any, ...] = ()
        self._moved = self._elsewhere = now()
        self._place: tuple[Any, ...] = ()
        self._used = deque([(now(), time.process_time(), kernel.bytes_transferred())], maxlen=_LOOKS)
        self._pace = BusyTime()

    def heartbeat(self) -> Heartbeat:
        """Return a new heartbeat with the present state of the thread."""
        now, frame, begun = self._now(), self.frame(), collectives_in_flight()
        at = tuple((step.f_code, step.f_lasti) for step in stacks.frames_outward(frame))
        stack = stacks.read_stack(frame)
        phase, what, began = mark = self._progress.mark
        stamped = phase != PYTHON
        self._note_progress(now, at, (mark, self._progress.calls, begun), stamped=stamped)
        if not stamped or classify_stack(stack)[0] == "compile":
            said = what
            phase, what = self._phase_from_stack(stack, frame, begun)
            what = said if phase == PYTHON else what
        group, peer = ("", -1) if stamped or phase not in WAITS else self._transfer_partners(what, frame, begun)
        counted = stamped or begun is not None or phase not in WAITS
        alike = now - self._elsewhere
        pace, noise = self._pace.measure()
        cores, io = self._resource_use(now)
        last = self._progress.last
        return Heartbeat(
            rank=self._rank,
            when=time.time(),
            phase=phase,
            what=_in_full(what, group, peer),
            where=innermost_users_line(stack),
            kernel=kernel.system_call(self._native) if alike else "",
            before=f"{last[0]} {last[1]}".strip() if last[0] != PYTHON else "",
            step=self._progress.step,
            order=self._progress.waits + (begun.begun if begun else 0) if counted else 0,
            since=now - began if stamped else alike,
            still=now - self._moved,
            alike=alike,
            cores=cores,
            io=io,
            pace=pace,
            noise=noise,
            group=group,
            peer=peer,
            limit=self._progress.limit if stamped and phase == "exchange" else 0.0,
            lockstep=in_lockstep(),
            stage=self._stage(phase, stack),
        )

    def pace(self) -> None:
        """Record this rank's waits and busy time, to find slow ranks; cheap enough to be called often."""
        self._pace.record(self._now(), self._progress.waits, self._progress.waited)

    @property
    def thread(self) -> int:
        """The ident of the observed thread; 0 if it has none."""
        return self._thread.ident or 0

    def frame(self) -> FrameType | None:
        """Return the innermost Python frame of the thread; None if the thread has ended."""
        return sys._current_frames().get(self._thread.ident or 0)

    def _note_progress(self, now: float, at: tuple[Any, ...], stamps: tuple[Any, ...], *, stamped: bool) -> None:
        if (at, stamps) != self._place:
            self._place, self._elsewhere = (at, stamps), now
            stacks.remember_sources(code.co_filename for code, _ in at)
        signs = (stamps,) if stamped else (stamps, at, kernel.count_context_switches(self._native))
        if signs != self._signs:
            self._signs, self._moved = signs, now

    def _stage(self, phase: str, stack: Sequence[Frame]) -> str:
        """Return the stage of the training: what allranks and the libraries know, never the time that it takes."""
        known = self._progress.stage or stage_of_stack(stack)
        if phase in CHECKPOINTS or known == CHECKPOINT.name:
            return CHECKPOINT.name
        if phase == "compile":
            return FIRST_STEP.name
        return known or (FIRST_STEP.name if is_before_first_step() else STEP.name)

    def _transfer_partners(
        self, what: str, frame: FrameType | None, begun: CollectivesInFlight | None
    ) -> tuple[str, int]:
        """Return (group, rank) with which a torch call waits: group "" for all ranks or unknown, rank -1 for none."""
        calls = (
            [step for step in stacks.frames_outward(frame) if step.f_code.co_name == what] if what in _PAIRED else []
        )
        peer = peer_of(calls[0], what) if calls else None
        pending = begun.pending if begun is not None and begun.begun == begun.ended and not calls else ()
        return pending[0] if len(pending) == 1 else "", -1 if peer is None else peer

    def _phase_from_stack(
        self, stack: Any, frame: FrameType | None, begun: CollectivesInFlight | None
    ) -> tuple[str, str]:
        """Return the phase and the call of a thread without a stamp, from its stack."""
        phase, what = classify_stack(stack)
        if phase != PYTHON:
            return phase, what
        if call := waits_for_device(frame):
            return "collective", call
        if begun is not None and begun.ended < begun.begun and stack and "/torch/" in stack[0].file:
            return "collective", f"torch's collective {begun.begun}"
        return phase, what

    def _resource_use(self, now: float) -> tuple[float, float]:
        """Return the cores, and the bytes a second, that the process has used over the last snapshots."""
        then, cpu, moved = self._used[0]
        used = now, time.process_time(), kernel.bytes_transferred()
        self._used.append(used)
        seconds = now - then
        return ((used[1] - cpu) / seconds, (used[2] - moved) / seconds) if seconds > 0 else (0.0, 0.0)


def _in_full(what: str, group: str, peer: int) -> str:
    """Return the text of a call, with the group or the rank with which it is made."""
    if peer >= 0:
        return f"{what} {_PAIRED[what]} rank {peer}"
    return f"{what} in {describe_group(group)}" if group else what


def collectives_of(threads: Mapping[str, FrameType]) -> Iterator[str]:
    """Yield a warning line for each of these threads that waits for a JAX program.

    ``threads`` are the threads other than the training thread.
    """
    for name, frame in threads.items():
        stack = stacks.read_stack(frame)
        phase, what = classify_stack(stack)
        call = waits_for_device(frame) if phase == PYTHON else ""
        is_jax = bool(call) or (phase == "collective" and any("/jax/" in step.file for step in stack))
        what = call or what
        if is_jax and not name.startswith(_AUTOGRADS):
            line = innermost_users_line(stack)
            yield f"thread {name} is in collective {what} at {line}: lockstep does not compare it (JAX)"
