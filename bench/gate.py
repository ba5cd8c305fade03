"""What the gate costs: to open a zone, to work in it, to be refused in it, and to meet before a collective.

``python -m bench.gate`` runs two ranks of each framework and prints Markdown. Every figure but those of a first time is
the best round of many: on a busy machine the best is what a call costs, and the rest is what the neighbours cost.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

ROUNDS = 30


def seconds(call: Callable[[], object], times: int = 300) -> float:
    """The time of one call in the best round of many calls."""
    rounds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(times):
            call()
        rounds.append((time.perf_counter() - begin) / times)
    return min(rounds)


def refused(call: Callable[[], object]) -> float:
    """How long a call takes to be refused, in a zone of its own."""
    from allranks.errors import CollectiveOnOneRank
    from allranks.world import zone

    with zone.one_rank(0):
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
    return lambda: add(small), lambda: total(whole)


def torch_calls() -> tuple[Callable[[], object], Callable[[], object]]:
    """A small local operation, and an all-reduce."""
    import torch
    import torch.distributed as dist

    mine, shared = torch.ones(2), torch.ones(2)
    dist.all_reduce(shared)
    return lambda: mine + 1, lambda: dist.all_reduce(shared)


def measure(framework: str) -> dict[str, float]:
    """All figures of this rank; the ones of the zone on rank 0 only. Every rank must call."""
    import allranks
    from allranks.world import zone

    def open_zone() -> None:
        with zone.one_rank(0):
            pass

    def meet() -> None:
        with allranks.collective(world, "bench", step=1):
            pass

    world = allranks.init(backend=framework)
    local, collective = (jax_calls if framework == "jax" else torch_calls)()
    found = {}
    if world.is_main:
        begin = time.perf_counter()
        open_zone()
        found["the first zone of a process"] = time.perf_counter() - begin
        found["a zone, opened and closed"] = seconds(open_zone)
        found["a local call outside"] = seconds(local)
        with zone.one_rank(0):
            local()
            found["a local call inside"] = seconds(local)
        found["a collective's refusal, the first"] = refused(collective)
        found["a collective's refusal, then"] = min(refused(collective) for _ in range(100))
    world.barrier()
    found["world.barrier()"] = seconds(world.barrier, 10)
    found["the entrance to gate.collective"] = seconds(meet, 10)
    found["on_main of nothing"] = seconds(lambda: world.on_main(lambda: None), 10)
    return found


def run(framework: str, size: int = 2) -> dict[str, float]:
    """Run this file as ``size`` ranks; return rank 0's figures."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "JAX_PLATFORMS": "cpu"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.gate", framework],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    figures: dict[str, float] = json.loads(outputs[0].splitlines()[-1])
    return figures


def show(value: float) -> str:
    return f"{value * 1e6:.1f} µs" if value < 1e-3 else f"{value * 1e3:.1f} ms"


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])), flush=True)
        return
    found: dict[str, Any] = {framework: run(framework) for framework in ("jax", "torch")}
    print("| | jax, 2 ranks | torch, 2 ranks |\n|---|---|---|")
    for name in found["jax"]:
        print(f"| {name} | {show(found['jax'][name])} | {show(found['torch'][name])} |")


if __name__ == "__main__":
    main()
