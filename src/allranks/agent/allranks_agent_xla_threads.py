"""Give XLA's CPU client enough threads that steps which are not awaited cannot deadlock.

The launch of a step waits, on a thread of XLA's pool, for its turn on each device. A running step needs a thread for
each device, for the rendezvous of its collectives. With fewer than two threads a device, a run of un-awaited steps can
leave no thread for the step for which all others wait. XLA then prints its "rendezvous" message, though the program is
correct. The pool has PJRT_NPROC or NPROC threads, else one per core.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from allranks_agent_imports import after_import  # type: ignore[import-not-found]

VARIABLES = ("PJRT_NPROC", "NPROC")  # XLA takes the first that is set
THREADS_A_DEVICE = 2
_VIRTUAL_DEVICES = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


def attach() -> None:
    """Enlarge the thread pool of each CPU client that JAX makes from now on, if it is too small."""
    after_import("jaxlib.xla_client", _wrap_make_cpu_client)


def virtual_devices(requested: int | None) -> int:
    """Return how many devices a CPU client will have. ``requested`` is the number that JAX requested, or None."""
    found = _VIRTUAL_DEVICES.findall(os.environ.get("XLA_FLAGS", ""))
    return requested or (int(found[-1]) if found else 1)


def threads() -> int:
    """Return how many threads XLA would give its pool, by the environment variables or the number of cores."""
    setting = next((os.environ[name] for name in VARIABLES if name in os.environ), "")
    return int(setting) if setting.isdecimal() and int(setting) else len(os.sched_getaffinity(0))


def _wrap_make_cpu_client(xla_client: ModuleType) -> None:
    make: Callable[..., Any] = xla_client.make_cpu_client
    if hasattr(make, "__wrapped__"):
        return

    @functools.wraps(make)
    def make_with_threads(*args: Any, **kwargs: Any) -> Any:
        with _at_least(THREADS_A_DEVICE * virtual_devices(kwargs.get("num_devices"))):
            return make(*args, **kwargs)

    xla_client.make_cpu_client = make_with_threads  # type: ignore[attr-defined]


@contextmanager
def _at_least(wanted: int) -> Iterator[None]:
    """While the ``with`` block runs, set the variables to ``wanted`` threads if XLA would use fewer.

    Restore them afterwards.
    """
    if threads() >= wanted:
        yield
        return
    theirs = {name: os.environ.get(name) for name in VARIABLES}
    os.environ.update(dict.fromkeys(VARIABLES, str(wanted)))
    try:
        yield
    finally:
        for name, value in theirs.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
