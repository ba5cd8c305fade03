"""Keep JAX from ignoring SIGTERM, unless the program queries JAX whether to save.

jax.distributed.initialize() sets a C handler for SIGTERM that only records the signal. It is for programs that call
`multihost_utils.reached_preemption_sync_point` at each step to learn whether to save (Orbax does). Any other program
would continue until it is killed. So after initialize(), SIGTERM has the same effect as before, until the program's
first query.
"""

from __future__ import annotations

import ctypes
import functools
import signal
from collections.abc import Callable
from types import ModuleType
from typing import Any

_SIZE = 256  # bytes; struct sigaction has 152 on Linux
_LIBC = ctypes.CDLL(None)


class _State:
    """The saved actions for SIGTERM: `jax` is JAX's action, `before` is the action that is used instead."""

    is_queried: bool = False
    jax: bytes | None = None
    before: bytes = b""


def leave_to_jax() -> None:
    """Let JAX's handler handle SIGTERM, now or as soon as JAX sets it."""
    _State.is_queried = True
    if _State.jax is not None and _handler_address(_sigterm_action()) == _handler_address(
        _State.before
    ):  # no other handler was set since
        _set_action(_State.jax)
    _State.jax = None


def watch(state: type[Any], is_active: Callable[[], bool]) -> None:
    """When JAX joins its processes in a process of a rank, save JAX's handler and restore the handler from before."""
    begin = state.initialize_preemption_sync_manager

    @functools.wraps(begin)
    def begin_and_restore(self: Any) -> None:
        before = _sigterm_action()
        begin(self)
        if is_active() and not _State.is_queried:
            _State.jax, _State.before = _sigterm_action(), before
            _set_action(before)

    state.initialize_preemption_sync_manager = begin_and_restore


def watch_queries(utils: ModuleType) -> None:
    """Let JAX handle SIGTERM from the program's first query on (the query asks JAX whether to save)."""
    ask = utils.reached_preemption_sync_point

    @functools.wraps(ask)
    def query(*args: Any, **kwargs: Any) -> Any:
        if not _State.is_queried:
            leave_to_jax()
        return ask(*args, **kwargs)

    utils.reached_preemption_sync_point = query  # type: ignore[attr-defined]


def _sigterm_action() -> bytes:
    found = ctypes.create_string_buffer(_SIZE)
    _LIBC.sigaction(signal.SIGTERM, None, found)
    return found.raw


def _handler_address(action: bytes) -> bytes:
    return action[: ctypes.sizeof(ctypes.c_void_p)]  # the first field; the mask's unused bits are random


def _set_action(action: bytes) -> None:
    _LIBC.sigaction(signal.SIGTERM, ctypes.create_string_buffer(action, _SIZE), None)
