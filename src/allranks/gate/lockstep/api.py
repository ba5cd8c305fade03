"""``allranks.lockstep``: around a function of JAX, or as a block around a training loop."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import TracebackType
from typing import Any, TypeVar, cast, overload

from allranks import agent
from allranks.callsite import call_site
from allranks.errors import AllranksError
from allranks.gate.lockstep import detect
from allranks.gate.lockstep.monitor import Check, Monitor
from allranks.world.base import World
from allranks.world.detect import current

F = TypeVar("F", bound=Callable[..., Any])
# Blocks that stay open to the end of the process.
_processes_blocks = ExitStack()


@overload
def lockstep(
    fn: F, /, *, lines: bool = True, check: Check = "steps", timeout: float | None = None, world: World | None = None
) -> F: ...
@overload
def lockstep(
    *, lines: bool = True, check: Check = "steps", timeout: float | None = None, world: World | None = None
) -> AbstractContextManager[None]: ...
def lockstep(
    fn: F | None = None,
    /,
    *,
    lines: bool = True,
    check: Check = "steps",
    timeout: float | None = None,
    world: World | None = None,
) -> F | AbstractContextManager[None]:
    """Have all ranks start the same collectives in the same order; **every rank must use it alike**.

    ``step = lockstep(jax.jit(step))``: a function of JAX (jit, pmap, shard_map), every call of which the ranks of its
    devices must make. From then on, programs across processes that are not wrapped are compared too, at their first
    run.

    ``with lockstep():`` the collectives of torch.distributed in this thread: DDP's, FSDP's and functional ones too, and
    its sends and receives. Who leaves the block while others stay in it is told so.

    Ranks that are about to do different things all raise the same Mismatch, before they enter: who does what, and the
    line where. Raises BarrierTimeout if a rank does not come within ``timeout`` seconds (default: the world's), and
    RankDied. A rank that has gone on into a collective that the others do not join cannot come back: it ends with the
    job.

    With ``lines``, the lines that start a call must be alike, too (of torch: for collectives in which all ranks have
    one part, so not for barriers and broadcasts). ``check`` says what is compared beside calls, each with
    what stands before it: with "calls" nothing; with "values" what JAX takes for equal on all ranks (numbers, NumPy
    arrays) at a program's first calls and about every five seconds; with "steps" how far the loops around a call have
    gone on since the call before, so that a rank that left a step out is found at its next call; with "content", at
    every call in a loop over a collection, which element it is made for: a barrier of its ranks at each, for a run that
    looks for an order that differs.

    A call that comes as the calls before it foretell costs about a microsecond and no message; another one costs a
    barrier of its ranks. ``world`` is the one that ``allranks.init()`` made, unless given.
    """
    world = world or current()
    if world.size == 1:
        return nullcontext() if fn is None else fn
    monitor = monitor_of(world)
    monitor.look_at(check)
    if fn is None:
        return _block(monitor, lines, timeout)
    return cast(F, detect.wrapped(monitor, fn, same_lines=lines, timeout=timeout))


@contextmanager
def _block(monitor: Monitor, lines: bool, timeout: float | None) -> Iterator[None]:
    try:
        with detect.watched(monitor, same_lines=lines, timeout=timeout):
            yield
    except Exception as error:
        monitor.explain(error)
        raise
    monitor.leave(call_site(), timeout)


def watch_process(
    *, lines: bool = True, check: Check = "steps", timeout: float | None = None, world: World | None = None
) -> None:
    """Open the block for the rest of this process, in this thread: for a program that does not import allranks.

    **Every rank must call**, in the thread that trains, as soon as the framework's processes have joined. Of JAX every
    run of every program across processes is compared, at 30 microseconds and more for each. The end of the block is not
    compared: a rank that ends is named where others go on.
    """
    world = world or current()
    if world.size == 1:
        return
    monitor = monitor_of(world)
    monitor.look_at(check)
    _processes_blocks.enter_context(detect.watched(monitor, same_lines=lines, timeout=timeout, unwrapped=True))
    show = sys.excepthook

    def show_cause(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            if isinstance(error, Exception):
                monitor.explain(error)
        except AllranksError as cause:
            cause.__traceback__ = None  # what it was raised from shows the place
            agent.load().explain(error, cause)
            kind, error, trace = type(cause), cause, None
        show(kind, error, trace)

    sys.excepthook = show_cause


@functools.cache
def monitor_of(world: World) -> Monitor:
    """Return the groups that this rank makes calls with."""
    return Monitor(world)
