"""One process on one device: how fast bytes are fingerprinted, staged, restored and loaded.

argv: torch or jax, cuda or cpu, megabytes, what (speed, save, load). Tells seconds and bytes a second.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from told import tell

import allranks

framework, device, megabytes, what = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
TIMES, STEPS, LEAVES, BATCHES = 5, 20, 16, 30
words = megabytes * 250_000
on_gpu = device == "cuda"
world = allranks.init(framework)

if framework == "torch":
    import torch

    def put(array: Any) -> Any:
        return torch.from_numpy(array).to(device)

    def wait(_: Any = None) -> None:
        if on_gpu:
            torch.cuda.synchronize()

    def multiply(x: Any) -> Any:
        return x @ x

    def copy(x: Any) -> Any:
        return x.clone()

else:
    import jax

    multiply, copy = jax.jit(lambda x: x @ x), jax.jit(lambda x: x + 0)
    put = jax.device_put

    def wait(made: Any = None) -> None:
        jax.block_until_ready(made)


def best(call: Callable[[], Any]) -> float:
    """Seconds of a call, the best of some, until the device has done it."""
    wait(call())
    took = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        wait(call())
        took.append(time.perf_counter() - begin)
    return min(took)


def speed() -> dict[str, float]:
    """Fingerprints beside a copy on the device, which reads and writes each byte."""
    from allranks.consistency.fingerprint import WordLayout

    array = np.random.default_rng(0).integers(0, 1 << 31, words, np.int32)
    there, word_layout = put(array), WordLayout(0, (words,), (1,))
    if framework == "torch":
        from allranks.consistency import torch as edge
    else:
        from allranks.consistency import jax as edge
    copied, printed = best(lambda: copy(there)), best(lambda: edge.fingerprints([([there], [word_layout])]))
    return {"memory": 2 * array.nbytes / copied, "fingerprint": array.nbytes / printed}


def link(state: Any) -> float:
    """Seconds in which the state crosses to the host at the best, into pinned memory that is there already."""
    if framework == "jax":
        return best(lambda: [np.asarray(leaf + 0) for leaf in state.values()])
    pinned = {name: torch.empty(leaf.shape, dtype=leaf.dtype, pin_memory=on_gpu) for name, leaf in state.items()}
    return best(lambda: [pinned[name].copy_(leaf, non_blocking=True) for name, leaf in state.items()])


def save() -> dict[str, float]:
    """What a save costs the training: until it returns, and in the steps while it is written. And the restore."""
    state = {f"w{i}": put(np.full(words // LEAVES, i, np.float32)) for i in range(LEAVES)}
    side = 2048 if on_gpu else 128
    x = put(np.ones((side, side), np.float32) / side)
    for _ in range(3):
        wait(multiply(x))

    def steps(count: int) -> list[float]:
        took = []
        for _ in range(count):
            begin = time.perf_counter()
            wait(multiply(x))
            took.append(time.perf_counter() - begin)
        return took

    usual, crossed = statistics.median(steps(STEPS)), link(state)
    found = {"link": crossed, "step": usual}
    with tempfile.TemporaryDirectory() as folder, allranks.Checkpointer(Path(folder) / "run", world) as saver:
        for step in (1, 2):  # the first save has to find its memory
            begin = time.perf_counter()
            handle = saver.save(step, state)
            found[f"save {step} returned"] = time.perf_counter() - begin
            lost, saved = 0.0, 0
            while not handle.done and saved < 100_000:
                lost += sum(steps(1)) - usual
                saved += 1
            handle.wait()
            found[f"save {step} written"], found[f"save {step} lost"] = time.perf_counter() - begin, lost
        begin = time.perf_counter()
        restored = saver.restore(like=state)
        wait(restored.state["w1"])
        found["restore"] = time.perf_counter() - begin
        assert float(restored.state["w1"].reshape(-1)[0]) == 1.0
    return found


def load() -> dict[str, float]:
    """A loop with batches of the loader beside the same steps on a batch that is there already."""
    rows, columns = 64, max(64, words // 64 // BATCHES)
    many = np.zeros((rows * BATCHES, columns), np.float32)
    data = allranks.Dataset.sequence([{"x": row} for row in many]).batch(rows)
    side = 4096 if on_gpu else 128
    x = put(np.ones((side, side), np.float32) / side)

    def to_device(batch: Any) -> Any:
        if framework == "torch":
            return batch.to_torch(device, pin_memory=on_gpu)
        return batch.to_jax(jax.sharding.SingleDeviceSharding(jax.devices()[0]))  # allranks: ignore[AR608] one process

    def loop(batches: Any) -> float:
        begin = time.perf_counter()
        for _ in batches:
            wait(multiply(x))
        return time.perf_counter() - begin

    bare = min(loop(range(BATCHES)) for _ in range(2))
    loader = data.loader(world)
    loop(map(to_device, loader))
    return {"steps": bare, "with batches": loop(map(to_device, loader)), "bytes": float(many.nbytes)}


tell(**{"speed": speed, "save": save, "load": load}[what]())
