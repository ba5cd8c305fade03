"""What agreement of state costs one rank. argv: jax or torch, and how many times each thing is timed.

A perceptron of 24 layers with Adam: 6.3 million parameters, 75 MB of state in 72 leaves; and 1,000 leaves of 32 bytes.
"""

from __future__ import annotations

import hashlib
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from told import tell

import allranks

LAYERS, WIDTH, ROWS = 24, 512, 256
Leaves = dict[str, dict[str, Any]]


def jax_training() -> tuple[Leaves, Callable[[], object], Callable[[Leaves], object]]:
    """The state, a step of it, and what JAX has to compare it."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils

    leaves = {f"w{n}": jax.random.normal(jax.random.key(n), (WIDTH, WIDTH)) / WIDTH**0.5 for n in range(LAYERS)}
    zeros = jax.tree.map(jnp.zeros_like, leaves)
    state = {"params": leaves, "mu": zeros, "nu": jax.tree.map(jnp.copy, zeros)}
    rows = jnp.ones((ROWS, WIDTH))

    def loss(params: Mapping[str, Any]) -> Any:
        x = rows
        for w in params.values():
            x = jnp.tanh(x @ w)
        return (x**2).mean()

    @jax.jit
    def step(state: Leaves) -> Leaves:
        grads = jax.grad(loss)(state["params"])
        mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mu"], grads)
        nu = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["nu"], grads)
        new = jax.tree.map(lambda w, m, v: w - 1e-3 * m / (jnp.sqrt(v) + 1e-8), state["params"], mu, nu)
        return {"params": new, "mu": mu, "nu": nu}

    def train() -> None:
        jax.block_until_ready(step(state))

    return state, train, lambda tree: multihost_utils.assert_equal(tree)


def torch_training() -> tuple[Leaves, Callable[[], object], Callable[[Leaves], object]]:
    """The state, a step of it, and a digest of each leaf, gathered: what Megatron-LM does."""
    import torch
    import torch.distributed as dist

    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    rows = torch.ones(ROWS, WIDTH)

    def train() -> None:
        optimizer.zero_grad()
        (model(rows) ** 2).mean().backward()
        optimizer.step()

    def digests(tree: Leaves) -> None:
        mine = [hashlib.sha1(t.detach().numpy().data).digest() for of in tree.values() for t in of.values()]
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, mine)
        assert all(one == mine for one in every)

    for tensor in model.parameters():
        dist.broadcast(tensor.data, 0)
    train()
    moments = {name: {str(n): optimizer.state[p][name] for n, p in enumerate(model.parameters())} for name in MOMENTS}
    return {"params": dict(model.named_parameters()), **moments}, train, digests


MOMENTS = ("exp_avg", "exp_avg_sq")


def timed(call: Callable[[], object], times: int) -> float:
    """The median time of a call that all ranks begin together."""
    taken = []
    for _ in range(times + 1):
        world.barrier()
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[1:])


def passing() -> None:
    for step in range(1, 1001):
        allranks.verify(state, step, every=2000)


framework, times = sys.argv[1], int(sys.argv[2])
world = allranks.init(backend=framework)
state, train, theirs = (jax_training if framework == "jax" else torch_training)()
kind: Any = np.asarray if framework == "torch" else __import__("jax").numpy.asarray
small = {f"leaf{n}": kind(np.full(8, n, np.float32)) for n in range(1000)}
odd = {**small, "leaf500": kind(np.full(8, float(world.rank == world.size - 1), np.float32))}
tell(
    **{
        "a training step": timed(train, times),
        "verify(state)": timed(lambda: allranks.verify(state), times),
        "the framework's way": timed(lambda: theirs(state), max(2, times // 4)),
        "verify(state, proof=True)": timed(lambda: allranks.verify(state, proof=True), times),
        "verify(1,000 leaves)": timed(lambda: allranks.verify(small), times),
        "the same, one of which differs on a rank": timed(lambda: allranks.verify(odd, on_mismatch=str), times),
        "its exchange alone: verify(one leaf)": timed(lambda: allranks.verify({"a": small["leaf1"]}), times),
        "the framework's way, 1,000 leaves": timed(lambda: theirs(small), max(2, times // 4))
        if framework == "jax"
        else None,
        "verify(state, step, every=100), a step between": timed(passing, 3) / 1000,
        "the barrier of the world": timed(world.barrier, times),
    }
)
