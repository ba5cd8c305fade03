"""Ranks that share one device: lockstep, the gate and a hang. argv: torch or jax, cuda or cpu, what (agree, stuck).

Backends: NCCL for one rank of torch, gloo with tensors of the device for several; JAX has one client a process.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Any

from told import tell

import allranks
from allranks.errors import AllranksError

framework, device, what = sys.argv[1], sys.argv[2], sys.argv[3]
on_gpu = device == "cuda"
if what == "stuck":
    os.environ["ALLRANKS_HANG_AFTER"] = "2"
if framework == "torch":
    import torch
    import torch.distributed as dist

    if on_gpu:
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if on_gpu and os.environ["WORLD_SIZE"] == "1" else "gloo")
    world = allranks.init("torch")

    def add() -> float:
        x = torch.ones(4, device=device)
        dist.all_reduce(x)
        return float(x[0])

else:
    import jax

    jax.distributed.initialize(local_device_ids=[0] if on_gpu else None)
    world = allranks.init("jax")
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    split = NamedSharding(jax.make_mesh((jax.device_count(),), ("d",)), PartitionSpec("d"))
    ones = jax.make_array_from_callback((jax.device_count(),), split, lambda _: np.ones(1, np.float32))
    total = allranks.lockstep(jax.jit(jnp.sum))

    def add() -> float:
        return float(total(ones))


def agree() -> dict[str, Any]:
    """Sums are right in lockstep, one rank alone is refused, and one that does otherwise is found."""
    with allranks.lockstep():
        sums = [add() for _ in range(20)]
    refused = ""
    if world.size > 1:
        try:
            world.on_main(add)
        except AllranksError as error:
            refused = type(error).__name__
    begin = time.perf_counter()
    for _ in range(100):
        add()
    return {"sum": sums[-1], "right": set(sums) == {float(world.size)}, "refused": refused,
            "call": (time.perf_counter() - begin) / 100}  # fmt: skip


def stuck() -> dict[str, Any]:
    """Rank 1 waits for a kernel that does not end, for minutes."""
    for _ in range(5):
        add()
    if world.rank == 1:
        tell(when=time.monotonic())
        if on_gpu and framework == "torch":
            torch.cuda._sleep(10**12)
            torch.cuda.synchronize()  # HERE
        ctypes.CDLL(None).sleep(300)
    add()
    return {}


found = {"agree": agree, "stuck": stuck}[what]()
tell(**found)
