"""Ranks that meet in every step, until rank 1 stands still. argv: jax or torch; watched or bare; what happens, or none.

With ``none``, each rank tells how long 300 steps took and what a look costs.
"""

import ctypes
import os
import signal
import sys
import threading
import time

from told import tell

framework, watched, what = sys.argv[1], sys.argv[2] == "watched", sys.argv[3]
os.environ["ALLRANKS_HANG_AFTER"] = "2" if what != "none" else "240"

if framework == "jax":
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec
    from told import join_jax

    join_jax()
    rank = jax.process_index()
    one_each = NamedSharding(jax.make_mesh((jax.device_count(),), ("d",)), PartitionSpec("d"))
    ones = jax.make_array_from_callback((jax.device_count(),), one_each, lambda _: np.ones(1))
    add = jax.jit(jnp.sum)

    def step():
        return float(add(ones))
else:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()

    def step():
        one = torch.ones(1)
        dist.all_reduce(one)
        return one.item()


if watched:
    import allranks

    allranks.init()


def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)


def lock():
    held = threading.Lock()
    with held:
        held.acquire()


def gil():
    ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)


if what != "none":
    for _ in range(20):
        step()
    if rank == 1:
        tell(when=time.monotonic())
        globals()[what]()
    for _ in range(1000):
        step()

for _ in range(50):
    step()
begin, cpu = time.monotonic(), time.process_time()
for _ in range(2000):
    step()
figures = {"step": (time.monotonic() - begin) / 2000}
if watched:
    from allranks.hang.training_thread import TrainingThread

    look = TrainingThread(rank)
    begin = time.thread_time()
    for _ in range(200):
        look.beat()
    figures["look"] = (time.thread_time() - begin) / 200
    store, beat = allranks.current().store, b"x" * 400
    begin = time.monotonic()
    for _ in range(200):
        store.set(f"bench/{rank}", beat)
    figures["set"] = (time.monotonic() - begin) / 200
tell(**figures)
