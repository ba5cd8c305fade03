"""Keep JAX from swallowing SIGTERM, unless the program asks JAX whether to save.

jax.distributed.initialize() sets a C handler for SIGTERM that only takes note of it, for programs that ask
`multihost_utils.reached_preemption_sync_point` at each step whether to save (Orbax does). Any other program would live
on until it is killed. So SIGTERM does after initialize() what it did before, until the program first asks.
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
    """`jax` is JAX's action for SIGTERM, put aside; `before` is the one that is in force in its place."""

    is_asked: bool = False
    jax: bytes | None = None
    before: bytes = b""


def leave_to_jax() -> None:
    """Give SIGTERM to JAX's handler, if there is one, or once there is one."""
    _State.is_asked = True
    if _State.jax is not None and _handler(_action()) == _handler(_State.before):  # nobody has set another since
        _set_action(_State.jax)
    _State.jax = None


def watch(state: type[Any], is_active: Callable[[], bool]) -> None:
    """Have JAX's handler put aside when JAX joins its processes, in a process that speaks for its rank."""
    begin = state.initialize_preemption_sync_manager

    @functools.wraps(begin)
    def beginning(self: Any) -> None:
        before = _action()
        begin(self)
        if is_active() and not _State.is_asked:
            _State.jax, _State.before = _action(), before
            _set_action(before)

    state.initialize_preemption_sync_manager = beginning


def watch_question(utils: ModuleType) -> None:
    """Have SIGTERM be JAX's from the first time on that the program asks JAX whether to save."""
    ask = utils.reached_preemption_sync_point

    @functools.wraps(ask)
    def asking(*args: Any, **kwargs: Any) -> Any:
        if not _State.is_asked:
            leave_to_jax()
        return ask(*args, **kwargs)

    utils.reached_preemption_sync_point = asking  # type: ignore[attr-defined]


def _action() -> bytes:
    found = ctypes.create_string_buffer(_SIZE)
    _LIBC.sigaction(signal.SIGTERM, None, found)
    return found.raw


def _handler(action: bytes) -> bytes:
    return action[: ctypes.sizeof(ctypes.c_void_p)]  # the first field; the mask's unused bits are random


def _set_action(action: bytes) -> None:
    _LIBC.sigaction(signal.SIGTERM, ctypes.create_string_buffer(action, _SIZE), None)
