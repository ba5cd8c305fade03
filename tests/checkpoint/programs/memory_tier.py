"""A training of four ranks on two pretended hosts, whose second host is lost at step 8 of the first start.

``memory_tier.py FRAMEWORK RUN lost | unbroken``: rank 0 writes the loss of every step into RUN/losses, in hexadecimal.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

FRAMEWORK, RUN, STORY = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
RANK = int(os.environ["ALLRANKS_RANK"])
os.environ["ALLRANKS_HOST"] = "ab"[RANK // 2]
STEPS, LOST_AT = 12, 8

import allranks  # noqa: E402

if FRAMEWORK == "torch":
    import torch

    torch.distributed.init_process_group("gloo")
    world = allranks.init()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    state = {"model": model, "optimizer": optimizer}

    def train(number: int) -> float:
        draw = torch.Generator().manual_seed(4 * number + RANK)
        x = torch.randn(32, 64, generator=draw)
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        for parameter in model.parameters():
            torch.distributed.all_reduce(parameter.grad)
        optimizer.step()
        torch.distributed.all_reduce(loss.detach())
        return float(loss)

else:
    import jax
    import jax.numpy as jnp
    import numpy as np

    world = allranks.init()
    mesh = jax.make_mesh((4,), ("data",))
    sharded = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))

    def spread(array: object) -> jax.Array:
        whole = np.asarray(array, np.float32)
        return jax.make_array_from_callback(whole.shape, sharded, lambda index: whole[index])

    state = {"w": spread(np.linspace(-1, 1, 4 * 512).reshape(4, 512)), "m": spread(np.zeros((4, 512)))}

    @jax.jit
    def update(w: jax.Array, m: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        def loss_of(w: jax.Array) -> jax.Array:
            return jnp.square(jnp.sin(w * (1 + number)) - 0.5).sum()

        loss, grad = jax.value_and_grad(loss_of)(w)
        m = 0.9 * m + grad
        return w - 1e-3 * m, m, loss

    def train(number: int) -> float:
        state["w"], state["m"], loss = update(state["w"], state["m"], jnp.float32(number))
        return float(loss)


with allranks.Checkpointer(RUN, world, every=5, memory_every=2) as ckpt:
    restored = ckpt.restore(state)
    step = 0
    if restored is not None:
        state, step = restored
        allranks.print(f"step {step} from {restored.source}: {'; '.join(restored.notes) or 'all is well'}")
    while step < STEPS:
        loss = train(step)
        step += 1
        ckpt.maybe_save(step, state, metrics={"loss": loss})
        if world.is_main:
            with open(RUN / "losses", "a") as file:
                print(step, loss.hex(), file=file)
        if STORY == "lost" and step == LOST_AT and os.environ["ALLRANKS_RESTART"] == "0":
            ckpt.wait()
            world.barrier()
            if RANK == 3:  # the host goes down: its memory with it, and its ranks
                for folder in Path(os.environ["ALLRANKS_MEMORY_FOLDER"]).glob("allranks-*/*-b"):
                    shutil.rmtree(folder)
                os.kill(os.getpid(), signal.SIGKILL)
