"""Report a simulated rank that blocks. All ranks of a simulated world share one thread, so it blocks all of them."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from allranks.callsite import is_users, short_path

STALL_SECONDS = 15.0
_LOOKS = 5  # in that time


@dataclass(slots=True)
class Progress:
    """The progress of a run: ``turns`` counts how often a rank was resumed, ``thread`` is the thread of the run."""

    thread: int
    turns: int = 0


_runs: list[Progress] = []  # the innermost last
_monitor: threading.Thread | None = None


@contextmanager
def watch_for_stalls() -> Iterator[Progress]:
    """Watch a run for the ``with`` block. If one turn takes more than ``STALL_SECONDS``, report it once on stderr.

    The run must count its turns in the yielded object.
    """
    global _monitor
    if _monitor is None or not _monitor.is_alive():  # a forked child has none
        _monitor = threading.Thread(target=_watch_turns, name="allranks-simulated", daemon=True)
        _monitor.start()
    _runs.append(Progress(threading.get_ident()))
    try:
        yield _runs[-1]
    finally:
        _runs.pop()


def _watch_turns() -> None:
    before: tuple[Progress, int] | None = None
    alike = 0
    while True:
        threading.Event().wait(STALL_SECONDS / _LOOKS)
        now = next(((run, run.turns) for run in _runs[-1:]), None)
        if now is None or before is None or now[0] is not before[0] or now[1] != before[1]:
            before, alike = now, 0
            continue
        alike += 1
        if alike == _LOOKS:
            os.write(2, stall_report(now[0].thread).encode(errors="backslashreplace"))


def stall_report(thread: int) -> str:
    """Return the text that says which rank runs in a thread now, and at which line."""
    frame = sys._current_frames().get(thread)
    steps = [] if frame is None else list(traceback.walk_stack(frame))
    lines = [
        f"{short_path(step.f_code.co_filename)}:{line}" for step, line in steps if is_users(step.f_code.co_filename)
    ]
    ranks = [step.f_locals["rank"].number for step, _ in steps if step.f_code.co_name == "_run_rank"]
    who = f"rank {ranks[0]}" if ranks else "a rank"
    where = lines[0] if lines else "a line of a library"
    return (
        f"allranks: {who} of the simulated world is at {where} for more than {STALL_SECONDS:g} s without a call of its "
        "world. All ranks share its thread, and wait. If it waits there for another rank (a lock, a queue, a file), it "
        "waits for ever: simulated ranks meet through their world only.\n"
    )
