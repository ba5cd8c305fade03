"""``allranks.checkpoint.follow``: each new step of a run, for a job beside it that evaluates."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from allranks.checkpoint import audit, fence, holds
from allranks.errors import BarrierTimeout, StepRemoved
from allranks.storage.base import Storage
from allranks.storage.detect import open_storage, place_of


def follow(
    where: str | os.PathLike[str] | Storage,
    *,
    after: int = -1,
    hold: bool = True,
    every: float = 5.0,
    timeout: float | None = None,
) -> Iterator[int]:
    """Yield the steps of a run as they are saved, in ascending order, and end with the run. Any rank may call it alone.

    What is there is yielded first; steps up to ``after`` are not. With ``hold``, a step is not removed while the body
    of the loop runs (an hour at most). A step that is removed before its turn is left out. The run is listed every
    ``every`` seconds; it has ended when its job has closed it, or has ended on this machine. Raises BarrierTimeout
    after ``timeout`` seconds without a new step (None: never).
    """
    storage = open_storage(where)
    since = time.monotonic()
    while True:
        ended = _has_ended(storage)  # before the steps are listed: the last one is among them
        for step in audit.steps(storage):
            if step <= after:
                continue
            after = step
            yield from _given(storage, step, hold=hold)
            since = time.monotonic()
        if ended:
            return
        if timeout is not None and time.monotonic() - since > timeout:
            raise BarrierTimeout(f"follow: {storage.url} has no new step for {timeout:g} s.", step=max(after, 0))
        time.sleep(every)


def _given(storage: Storage, step: int, *, hold: bool) -> Iterator[int]:
    if not hold:
        yield step
        return
    try:
        path = holds.take(storage, step, minutes=60)
    except StepRemoved:
        return
    try:
        yield step
    finally:
        holds.release(storage, path)


def _has_ended(storage: Storage) -> bool:
    found = fence.newest(storage)
    if found is None:
        return False  # it has not begun
    me = fence.this_process()
    ours = (found.owner.pid, found.owner.started) == (me.pid, me.started)
    here = bool(found.owner.machine) and found.owner.machine == me.machine and not ours
    return found.released or (here and not fence.lives_here(found, me, place_of(storage)))
