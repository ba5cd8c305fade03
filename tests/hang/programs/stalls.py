"""A training loop in which something happens to one rank: ``stalls.py FRAMEWORK FAULT RANK FOLDER``, on real ranks.

The rank leaves the time in FOLDER/stalled. After a restart nothing happens any more, and the job ends.
"""

import ctypes
import os
import queue
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import allranks

framework, fault, victim, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
STEPS, FAULT_AT = 400, 5


def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def raises():
    raise ValueError("bad row")


def leaves():
    sys.exit(0)


def fifo():
    os.mkfifo(folder / "pipe")
    open(folder / "pipe").close()


def lock():
    held = threading.Lock()
    with held:
        held.acquire()


def deadlock():
    """Two threads, two locks, each waits for the other's."""
    one, two, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def other():
        with two:
            both.wait()
            one.acquire()

    with one:
        threading.Thread(target=other, daemon=True).start()
        both.wait()
        two.acquire()


def holds_the_gil():
    ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)


def polls():
    while not (folder / "never").exists():
        time.sleep(0.05)


def data():
    queue.Queue().get()


def network():
    server = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(server.getsockname()).recv(1)


def meets_alone():
    allranks.current().barrier("only here")


def worker():
    """A DataLoader whose worker never gives a batch."""
    from torch.utils.data import DataLoader, Dataset

    class Stuck(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, _):
            time.sleep(3600)

    next(iter(DataLoader(Stuck(), num_workers=1)))


def slow_in_step(steps=90):
    """All ranks meet in every step; the victim takes twice as long for it, which no busy machine hides."""
    for _ in range(steps):
        time.sleep(0.1 if world.rank == victim else 0.05)
        world.barrier("step")


if framework == "jax":
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    def prepare():
        mesh = jax.make_mesh((jax.device_count(),), ("d",))
        one_each = NamedSharding(mesh, PartitionSpec("d"))
        ones = jax.make_array_from_callback((jax.device_count(),), one_each, lambda _: np.ones(1))
        add = jax.jit(jnp.sum)
        return lambda: float(add(ones))

else:
    import torch
    import torch.distributed as dist

    def prepare():
        def total():
            one = torch.ones(1)
            dist.all_reduce(one)
            return one.item()

        return total


world = allranks.init(framework, timeout=60)
if fault == "slow":
    slow_in_step()
    sys.exit()
total = prepare()
for step in range(STEPS):
    assert total() == world.size
    if step == FAULT_AT and world.rank == victim and os.environ.get("ALLRANKS_RESTART", "0") == "0":
        (folder / "stalled").write_text(repr(time.time()))
        globals()[fault]()
    if os.environ.get("ALLRANKS_RESTART", "0") != "0" and step == FAULT_AT:
        break
    time.sleep(0.02)
print(f"rank {world.rank} has done {step} steps, restart {os.environ.get('ALLRANKS_RESTART')}")
