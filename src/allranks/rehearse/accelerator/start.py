"""Map the accelerator in this process: as soon as torch or JAX is imported, or now if it is."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from typing import Any

from allranks.agent import load
from allranks.rehearse.accelerator import cuda, groups, imports, jax_devices, names
from allranks.rehearse.accelerator.devices import Devices
from allranks.rehearse.accelerator.generators import Generators
from allranks.rehearse.accelerator.state import STATE

hooks = load("allranks_agent_imports")
_attached: list[bool] = []


def is_wanted() -> bool:
    """Return whether the rehearsal of this process maps CUDA to the CPU."""
    return bool(json.loads(os.environ.get("ALLRANKS_PROBE", "{}")).get("accelerator") == "cpu")


def attach() -> None:
    """Map the accelerator, once per process. A fork of the process keeps it."""
    if _attached or not is_wanted():
        return
    _attached.append(True)
    imports.attach()
    if platforms := os.environ.get("JAX_PLATFORMS"):
        os.environ["JAX_PLATFORMS"] = names.cpu_platforms(platforms)
    hooks.after_import("torch", _torch)
    hooks.after_import("jax", jax_devices.attach)
    hooks.after_import("jax.experimental.pallas", jax_devices.attach_pallas)


def record(write: Callable[..., None]) -> None:
    """Pass the names that are mapped to ``write``."""
    STATE.record(write)


def _torch(torch: Any) -> None:
    generators = Generators(torch)
    Devices(torch, generators.current).attach()
    cuda.attach(torch, generators)
    STATE.when_used(generators.attach)
    groups.attach_ddp(torch.nn.parallel.distributed)
    hooks.after_import("torch.nn.parallel.data_parallel", groups.attach_data_parallel)
    groups.attach_batch_norm(torch, torch.nn.modules.batchnorm)
    hooks.after_import("torch.distributed.distributed_c10d", groups.Groups(torch).attach)
    hooks.after_import("torch.distributed.device_mesh", groups.attach_mesh)
    fsdp = functools.partial(groups.attach_fsdp, torch)
    hooks.after_import("torch.distributed.fsdp.fully_sharded_data_parallel", fsdp)
    hooks.after_import("torch.distributed.fsdp._fully_shard._fsdp_collectives", groups.attach_sharding)
