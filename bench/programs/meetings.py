"""How long the ranks take to meet, by our world and by the framework. argv: jax or torch, rounds, calls of a round.

A round calls each way so many times on end; all ways take turns. Rank 0 tells the seconds of a call, by way and round.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import timedelta

from told import tell

import allranks
from allranks.world.base import World

Ways = dict[str, Callable[[], object]]


def ours(world: World) -> Ways:
    return {
        "world.barrier()": world.barrier,
        "world.all_gather(rank)": lambda: world.all_gather(world.rank),
        "world.gather(rank)": lambda: world.gather(world.rank),
    }


def by_fanout(world: World, store: Callable[[str], object]) -> Ways:
    """Barriers of the same ranks along narrower and wider trees, each with keys of its own."""
    return {
        f"barrier, fanout {fanout}": World(world.identity, store(f"bench-{fanout}/"), fanout=fanout).barrier
        for fanout in (2, 4, 8, 64)
    }


def jax_ways(world: World) -> Ways:
    import numpy as np
    from jax._src import distributed
    from jax.experimental import multihost_utils

    from allranks.world.jax import JaxStore

    client, mine = distributed.global_state.client, np.array(world.rank)
    numbers = iter(range(10**9))
    theirs = {
        "multihost_utils.sync_global_devices": lambda: multihost_utils.sync_global_devices("bench"),
        "multihost_utils.process_allgather": lambda: multihost_utils.process_allgather(mine),
        "JAX's client.wait_at_barrier": lambda: client.wait_at_barrier(f"bench-{next(numbers)}", 60_000),
    }
    return {**theirs, **by_fanout(world, JaxStore)}


def torch_ways(world: World) -> Ways:
    import torch.distributed as dist

    from allranks.world.torch import TorchStore

    everyone, limit = [None] * world.size, timedelta(seconds=60)
    on_main = everyone if world.is_main else None
    theirs = {
        "dist.barrier()": dist.barrier,
        "dist.monitored_barrier()": lambda: dist.monitored_barrier(timeout=limit),
        "dist.all_gather_object": lambda: dist.all_gather_object(everyone, world.rank),
        "dist.gather_object": lambda: dist.gather_object(world.rank, on_main),
    }
    return {**theirs, **by_fanout(world, TorchStore)}


framework, rounds, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if framework == "torch":
    import torch.distributed

    torch.distributed.init_process_group("gloo")  # with torch's default, monitored_barrier refuses
world = allranks.init(backend=framework)
ways = {**ours(world), **(jax_ways if framework == "jax" else torch_ways)(world)}
seconds: dict[str, list[float]] = {name: [] for name in ways}
for turn in range(rounds + 1):
    for name, way in ways.items():
        world.barrier()
        begin = time.perf_counter()
        for _ in range(calls if turn else 1):
            way()
        if turn:  # in the first turn connections are made, and programs compiled
            seconds[name].append((time.perf_counter() - begin) / calls)
tell(**seconds)
