"""The guard of JAX: inside the zone, a computation on arrays of several processes raises before it runs.

JAX keeps compiled programs in a C++ cache that never comes back to Python. But that cache is keyed by JAX's
thread-local settings, and ours is one of them: inside the zone every program passes Python once
(``ExecuteReplicated``), without being traced or compiled again, and there its devices are looked at. A program of this
process' own devices goes into the cache under the new key and is as fast as ever; one that needs other processes never
gets that far.

``multihost_utils`` ends in such programs. Besides, a zone refuses the coordination service's barriers, the start of the
backend (which waits for all processes), and the reading of a value that lies on other processes.

All this is JAX's private ground: ``_self_test`` proves it in the running version. Where it fails, a warning says so,
and only the functions of ``multihost_utils`` are refused. Not seen: threads that the user starts, and the experimental
``device_put`` between hosts (one sends, one receives).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from allranks.world.zone import Zone, current, refuse

_PUBLIC = ("process_allgather", "broadcast_one_to_all", "sync_global_devices", "assert_equal")


# JAX's own modules, by attribute: an import of a private module that has moved would fail before we can say anything.
_jax: Any = jax._src


@contextmanager
def guard(zone: Zone) -> Iterator[None]:
    """Make computations across processes raise CollectiveOnOneRank for the length of a zone, in this thread."""
    del zone
    setting = _setting() if _spans_processes() else None
    if setting is None:
        yield
        return
    before = setting.swap_local(True)
    try:
        yield
    finally:
        setting.set_local(before)


def _spans_processes() -> bool:
    """Say whether this process is one of several, without starting a backend."""
    return jax.distributed.is_initialized() or (_backend_is_up() and jax.process_count() > 1)


def _backend_is_up() -> bool:
    return bool(_jax.xla_bridge.backends_are_initialized())


def _setting() -> Any | None:
    """Return the thread-local setting that marks a zone; None, and the fall-back in place, where it has no effect."""
    hooked = _hooked()
    # Before the backend is up nothing can be tried, and nothing is cached that could pass us by.
    if hooked is not None and (not _backend_is_up() or _self_test(*hooked)):
        return hooked[0]
    _fall_back()
    return None


@functools.cache
def _hooked() -> tuple[Any, ExitStack] | None:
    """Hook JAX, once for this process; return our setting and the way back, or None where private names have moved."""
    with ExitStack() as undo, suppress(AttributeError, TypeError):
        setting = _jax.config.config_ext.Config("allranks_one_rank", None, include_in_jit_key=True)
        client = _jax.distributed._jax.DistributedRuntimeClient
        _ahead_of(undo, _jax.interpreters.pxla.ExecuteReplicated, "__call__", _refuse_program)
        _ahead_of(undo, _jax.xla_bridge, "backends", _refuse_start)
        _ahead_of(undo, client, "wait_at_barrier", lambda *_: refuse("JAX's coordination-service barrier"))
        _ahead_of(undo, client, "get_live_nodes", lambda *_: refuse("JAX's query for live processes"))
        _ahead_of_value(undo, _jax.array.ArrayImpl)
        return setting, undo.pop_all()
    return None


def _ahead_of(undo: ExitStack, owner: Any, name: str, look: Callable[..., object]) -> None:
    """Have ``look`` called with a function's positional arguments ahead of it, until ``undo`` is closed."""
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        look(*args)
        return original(*args, **kwargs)

    setattr(owner, name, watched)
    undo.callback(setattr, owner, name, original)


def _ahead_of_value(undo: ExitStack, array_type: Any) -> None:
    """Refuse to read an array of which this process holds a part; JAX's own error would advise a collective."""
    original = array_type._value
    read = original.fget

    def value(array: Any) -> Any:
        if not (array.is_fully_addressable or array.is_fully_replicated):
            refuse("reading a jax.Array that lies on several processes")
        return read(array)

    array_type._value = property(value)
    undo.callback(setattr, array_type, "_value", original)


def _is_local(program: Any) -> bool:
    """Say whether a compiled program (an ``ExecuteReplicated``) runs on this process' devices only."""
    shardings = (*program.in_handler.in_shardings, *program.out_handler.out_shardings)
    return all(sharding.is_fully_addressable for sharding in shardings)


def _refuse_program(program: Any, *_: object) -> None:
    if current() is not None and not _is_local(program):
        refuse(f"the JAX computation {program.name}")


def _refuse_start() -> None:
    if current() is not None and _spans_processes() and not _backend_is_up():
        refuse("the start of JAX's backend (its first use on any rank)")


@functools.cache
def _self_test(setting: Any, hooks: ExitStack) -> bool:
    """Say whether a program that is long in the C++ cache passes Python under the setting, and can be judged there.

    If not, the hooks are taken out again.
    """
    judged: list[bool] = []
    with ExitStack() as undo, ThreadPoolExecutor(1) as fresh_thread, suppress(AttributeError, TypeError):
        fresh_thread.submit(_run_cached, setting, undo, judged).result()
    if judged != [True]:
        hooks.close()
    return judged == [True]


def _run_cached(setting: Any, undo: ExitStack, judged: list[bool]) -> None:
    """Put a local program into the C++ cache and run it under the setting; for a thread without the user's settings."""
    with jax.disable_jit(False):
        program = jax.jit(lambda x: x + 1)
        x = jax.device_put(np.float32(0), jax.local_devices()[0])
        program(x)
        program(x)
        _ahead_of(undo, _jax.interpreters.pxla.ExecuteReplicated, "__call__", lambda p, *_: judged.append(_is_local(p)))
        setting.set_local(True)
        program(x)


@functools.cache
def _fall_back() -> None:
    """Refuse what can be refused by public names, and say that this is all."""
    warnings.warn(
        f"allranks does not know the inside of jax {jax.__version__}: in code that one rank runs, only the functions "
        f"{', '.join(_PUBLIC)} of multihost_utils are refused; a jit on arrays of several processes may hang.",
        RuntimeWarning,
        stacklevel=2,
    )
    for name in _PUBLIC:
        _ahead_of(ExitStack(), multihost_utils, name, lambda *_, name=name: refuse(f"multihost_utils.{name}"))
