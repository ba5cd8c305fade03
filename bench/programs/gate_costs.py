"""What the gate costs one rank of two. argv: jax or torch. Rank 0 also measures its sections."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from told import tell

import allranks
from allranks.errors import CollectiveOnOneRank
from allranks.world.guards.detect import one_rank

ROUNDS = 30


def best(call: Callable[[], object], times: int = 300) -> float:
    """The time of one call in the best round: what it costs; the rest is what the machine's other work costs."""
    rounds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(times):
            call()
        rounds.append((time.perf_counter() - begin) / times)
    return min(rounds)


def refused(call: Callable[[], object]) -> float:
    """How long a call takes to be refused, in a section of its own."""
    with one_rank(0):
        begin = time.perf_counter()
        try:
            call()
        except CollectiveOnOneRank:
            return time.perf_counter() - begin
    raise AssertionError("not refused")


def jax_calls() -> tuple[Callable[[], object], Callable[[], object]]:
    """A small local jit, and a jit across processes, both long compiled."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mine = np.ones(2, np.float32)
    split = NamedSharding(Mesh(jax.devices(), "d"), PartitionSpec("d"))
    whole = jax.make_array_from_process_local_data(split, mine)
    small = jax.device_put(mine, jax.local_devices()[0])
    add, total = jax.jit(lambda x: x + 1), jax.jit(lambda x: x.sum())
    for _ in range(3):
        add(small), total(whole).block_until_ready()
    return lambda: add(small), lambda: total(whole).block_until_ready()


def torch_calls() -> tuple[Callable[[], object], Callable[[], object]]:
    """A small local operation, and an all-reduce."""
    import torch
    import torch.distributed as dist

    mine, shared = torch.ones(2), torch.ones(2)
    dist.all_reduce(shared)
    return lambda: mine + 1, lambda: dist.all_reduce(shared)


def meet() -> None:
    with allranks.collective(world, "bench", step=1):
        pass


def open_section() -> None:
    with one_rank(0):
        pass


framework = sys.argv[1]
world = allranks.init(backend=framework)
local, collective = (jax_calls if framework == "jax" else torch_calls)()
found = {}
if world.is_main:
    begin = time.perf_counter()
    open_section()
    found["the first section of a process"] = time.perf_counter() - begin
    found["a section, opened and closed"] = best(open_section)
    found["a local call outside"] = best(local)
    with one_rank(0):
        local()
        found["the same inside a section"] = best(local)
    # allranks: ignore[AR201] it is refused
    found["a collective's refusal, the first"] = refused(collective)
    found["a collective's refusal, then"] = min(refused(collective) for _ in range(100))
world.barrier()
found["the framework's own collective"] = best(collective, 10)
found["world.barrier()"] = best(world.barrier, 10)
found["the entrance to gate.collective"] = best(meet, 10)
found["on_main of nothing"] = best(lambda: world.on_main(lambda: None), 10)
tell(**found)
