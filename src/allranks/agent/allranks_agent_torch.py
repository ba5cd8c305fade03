"""Tell when torch.distributed joins; have it wait in collectives as long as the launcher was told.

A rank that ends needs no help here: its sockets close with the process.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from types import ModuleType
from typing import Any

from allranks_agent_imports import after_import  # type: ignore[import-not-found]

_ARGUMENTS_TO_TIMEOUT = 3  # init_process_group(backend, init_method, timeout, ...)


def attach(tell: Callable[..., None], is_active: Callable[[], bool]) -> None:
    """Watch init_process_group, of the torch imported already or later."""

    def watch_joining(c10d: ModuleType) -> None:
        join = c10d.init_process_group

        @functools.wraps(join)
        def telling(*args: Any, **kwargs: Any) -> Any:
            if not is_active():
                return join(*args, **kwargs)
            tell("joining", backend="torch")
            if len(args) < _ARGUMENTS_TO_TIMEOUT and (seconds := os.environ.get("ALLRANKS_RENDEZVOUS_TIMEOUT")):
                kwargs.setdefault("timeout", timedelta(seconds=float(seconds)))
            result = join(*args, **kwargs)
            tell("joined", backend="torch", size=c10d.get_world_size())
            return result

        for module in (c10d, sys.modules.get("torch.distributed")):
            if module is not None and getattr(module, "init_process_group", None) is join:
                module.init_process_group = telling  # type: ignore[attr-defined]

    after_import("torch.distributed.distributed_c10d", watch_joining)
