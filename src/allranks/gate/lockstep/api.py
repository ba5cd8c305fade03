"""Implement ``allranks.lockstep``, around a function of JAX or as a block around a training loop."""

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
# Blocks that stay open until the process ends.
_process_blocks = ExitStack()


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
    its sends and receives. A rank that leaves the block while others stay in it raises, too.

    Ranks that are about to make different calls all raise the same Mismatch before they make them: it says who does
    what, and at which line. Raises BarrierTimeout if a rank does not come within ``timeout`` seconds (default: the
    world's), and RankDied. A rank that already waits in a collective that the others do not join ends with the job.

    With ``lines``, the lines that start a call must be equal, too (in torch: for collectives in which all ranks have
    the same role, so not for barriers and broadcasts). ``check`` says what is compared beside calls; each value
    includes those before it. "calls": nothing. "values": the arguments that JAX takes for equal on all ranks (numbers,
    NumPy arrays), at a program's first calls and about every five seconds. "steps": the advance of the loops around a
    call since the call before, so that a rank that skipped a step is found at its next call. "content": at every call
    in a loop over a collection, the element for which the call is made; this costs a barrier of its ranks at each call,
    for a run that looks for an order that differs.

    A call that the calls before it predict costs about a microsecond and no message; another call costs a barrier of
    its ranks. ``world`` is by default the one that ``allranks.init()`` made.
    """
    world = world or current()
    if world.size == 1:
        return nullcontext() if fn is None else fn
    monitor = monitor_of(world)
    monitor.set_check(check)
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

    **Every rank must call**, in the thread that trains, as soon as the framework's processes have joined. In JAX every
    run of every program across processes is compared, which costs 30 microseconds and more each. The end of the block
    is not compared: a rank that ends is reported where others go on.
    """
    world = world or current()
    if world.size == 1:
        return
    monitor = monitor_of(world)
    monitor.set_check(check)
    _process_blocks.enter_context(detect.watched(monitor, same_lines=lines, timeout=timeout, unwrapped=True))
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
    """Return the monitor of this rank's groups in a world."""
    return Monitor(world)
