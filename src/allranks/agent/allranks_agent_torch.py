"""Report when torch.distributed joins; set its timeout of collectives to the launcher's.

The end of a rank needs no action here: its sockets close with the process.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import ModuleType
from typing import Any

import allranks_agent_loopback as loopback  # type: ignore[import-not-found]
import allranks_agent_missing_ranks as missing_ranks  # type: ignore[import-not-found]
from allranks_agent_imports import after_import  # type: ignore[import-not-found]

_ARGUMENTS = ("backend", "init_method", "timeout", "world_size", "rank", "store")  # of init_process_group
_ARGUMENTS_TO_TIMEOUT = 3
# Whether a step of an optimizer has ended; None if nobody watches that.
has_ended_a_step: bool | None = None


def attach(report: Callable[..., None], is_active: Callable[[], bool]) -> None:
    """Wrap torch's init_process_group, whether torch is imported already or later."""

    def watch_joining(c10d: ModuleType) -> None:
        join = c10d.init_process_group

        @functools.wraps(join)
        def join_and_report(*args: Any, **kwargs: Any) -> Any:
            if not is_active():
                return join(*args, **kwargs)
            wanted = _requested_size(dict(zip(_ARGUMENTS, args, strict=False)) | kwargs)
            missing_ranks.refuse("init_process_group", wanted, hint=" (Lightning: Trainer(devices={size}))")
            report("joining", backend="torch")
            if wanted:
                loopback.bind_torch_gloo(os.environ.get("MASTER_ADDR", ""))
            if len(args) < _ARGUMENTS_TO_TIMEOUT and (seconds := os.environ.get("ALLRANKS_RENDEZVOUS_TIMEOUT")):
                kwargs.setdefault("timeout", timedelta(seconds=float(seconds)))
            result = join(*args, **kwargs)
            watch_first_step()
            report("joined", backend="torch", size=c10d.get_world_size())
            return result

        for module in (c10d, sys.modules.get("torch.distributed")):
            if module is not None and getattr(module, "init_process_group", None) is join:
                module.init_process_group = join_and_report  # type: ignore[attr-defined]

    after_import("torch.distributed.distributed_c10d", watch_joining)
    after_import("torch.distributed.rendezvous", loopback.bind_torch_store)


def watch_first_step() -> None:
    """Find out from now on when the first step of an optimizer ends. torch must be imported."""
    global has_ended_a_step
    register = getattr(sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
    if has_ended_a_step is None and register is not None:
        has_ended_a_step = False
        register(_note_step)


def _note_step(*_: Any) -> None:
    global has_ended_a_step
    has_ended_a_step = True


def _requested_size(arguments: Mapping[str, Any]) -> int:
    """Return how many processes init_process_group would wait for; 0 if they need not all belong to this job."""
    if arguments.get("store") is not None or arguments.get("init_method") not in (None, "env://"):
        return 0
    size = arguments.get("world_size", -1)
    return int(size if size is not None and size > 0 else os.environ.get("WORLD_SIZE", 0))
