"""Implement ``allranks.lockstep``: a wrapper of a JAX function, or a block around a training loop."""

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
from allranks.gate.lockstep.monitor import Check, LockstepMonitor
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
    """Make sure that all ranks start the same collectives in the same order; **every rank must use it the same way**.

    ``step = lockstep(jax.jit(step))`` wraps a JAX function (jit, pmap, shard_map). All ranks of its devices must make
    each of its calls. From then on, other JAX programs across processes are compared too, but only at their first run.

    ``with lockstep():`` compares the collectives of torch.distributed in this thread, including those of DDP and FSDP,
    functional collectives, sends and receives. A rank also raises if it leaves the block while others stay in it.

    If ranks are about to make different calls, all of them raise the same Mismatch before they make the calls. The
    error names the call and the line of each rank. Raises BarrierTimeout if a rank does not arrive within ``timeout``
    seconds (default: the world's), and RankDied. A rank that already waits in a collective that the others do not join
    is ended with the job.

    With ``lines``, the lines that start a call must be equal, too. In torch this holds for collectives in which all
    ranks have the same role, so not for barriers and broadcasts.

    ``check`` says what is compared beside calls. Each value includes the values above it:

    - "calls": nothing else.
    - "values": the arguments that JAX assumes to be equal on all ranks (numbers, NumPy arrays), at the first calls of a
      program and about every five seconds.
    - "steps": how far the loops around a call have advanced since the previous call. So a rank that skipped a step is
      found at its next call.
    - "content": at every call in a loop over a collection, the element for which the call is made. This costs a barrier
      of the call's ranks each time. Use it to search for ranks with a different order.

    A call that earlier calls predict costs about a microsecond and no message. Any other call costs a barrier of its
    ranks. ``world`` is by default the world that ``allranks.init()`` returned.
    """
    world = world or current()
    if world.size == 1:
        return nullcontext() if fn is None else fn
    monitor = monitor_of(world)
    monitor.set_check(check)
    if fn is None:
        return _compared_block(monitor, lines, timeout)
    return cast(F, detect.wrap_function(monitor, fn, same_lines=lines, timeout=timeout))


@contextmanager
def _compared_block(monitor: LockstepMonitor, lines: bool, timeout: float | None) -> Iterator[None]:
    try:
        with detect.compare_collectives(monitor, same_lines=lines, timeout=timeout):
            yield
    except Exception as error:
        monitor.raise_cause(error)
        raise
    monitor.leave_block(call_site(), timeout)


def watch_process(
    *, lines: bool = True, check: Check = "steps", timeout: float | None = None, world: World | None = None
) -> None:
    """Start the ``lockstep`` block in this thread until the process ends: for a program that does not import allranks.

    **Every rank must call**, in the thread that trains, as soon as the framework's processes have joined. In JAX every
    run of every program across processes is compared, which costs 30 microseconds or more each. The ends of the block
    are not compared: a rank that ends is reported if other ranks continue.
    """
    world = world or current()
    if world.size == 1:
        return
    monitor = monitor_of(world)
    monitor.set_check(check)
    _process_blocks.enter_context(
        detect.compare_collectives(monitor, same_lines=lines, timeout=timeout, compares_all_programs=True)
    )
    show = sys.excepthook

    def show_cause(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            if isinstance(error, Exception):
                monitor.raise_cause(error)
        except AllranksError as cause:
            cause.__traceback__ = None  # what it was raised from shows the place
            agent.load().explain(error, cause)
            kind, error, trace = type(cause), cause, None
        show(kind, error, trace)

    sys.excepthook = show_cause


@functools.cache
def monitor_of(world: World) -> LockstepMonitor:
    """Return the monitor of this rank in a world; each world has one monitor."""
    return LockstepMonitor(world)
