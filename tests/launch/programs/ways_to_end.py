"""A training loop in which one rank ends, or stands still: ``ways_to_end.py FRAMEWORK init|plain WAY``, on real ranks.

The line that is to be named bears the comment ``# <- WAY``. Rank 1 does it after a few steps, or at the end of all.
"""

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

framework, way_in, way = sys.argv[1:4]
STEPS = 6

if way_in == "init":
    import allranks

    world = allranks.init(framework)
    rank, size = world.rank, world.size

if framework == "jax":
    import jax
    import numpy as np

    if way_in == "plain":
        jax.distributed.initialize()
        rank, size = jax.process_index(), jax.process_count()
    SHARDING = jax.NamedSharding(jax.make_mesh((size,), ("d",)), jax.P("d"))
    TOTAL = jax.jit(lambda x: x.sum())

    def step():
        ones = jax.make_array_from_callback((size,), SHARDING, lambda _: np.ones(1, np.float32))
        return float(TOTAL(ones))

    def leave_the_world():
        jax.distributed.shutdown()

else:
    import torch
    import torch.distributed as dist

    if way_in == "plain":
        dist.init_process_group("gloo")
        rank, size = dist.get_rank(), dist.get_world_size()

    def step():
        ones = torch.ones(1)
        dist.all_reduce(ones)
        return ones.item()

    def leave_the_world():
        dist.destroy_process_group()


def fail(name):
    raise ValueError(f"bad row of {name}")


def raises():
    raise ValueError("bad row")  # <- raises


def thread():
    def read():
        raise OSError("disk gone")  # <- thread

    threading.Thread(target=read, name="reader").start()
    time.sleep(60)


def exit_code():
    sys.exit(3)  # <- exit_code


def exit_text():
    sys.exit("no data")  # <- exit_text


def caught_exit():
    try:
        raise ValueError("bad row")  # <- caught_exit
    except ValueError:
        sys.exit(1)


def caught_hard_exit():
    try:
        raise ValueError("bad row")  # <- caught_hard_exit
    except ValueError as error:
        print("giving up:", error, flush=True)
        os._exit(5)


def caught_later_exit():
    failed = False
    try:
        fail("caught_later_exit")
    except ValueError as error:
        print("failed:", repr(error), flush=True)
        failed = True
    if failed:
        sys.exit(9)  # <- caught_later_exit


def hook():
    def show(*about):
        print("my hook:", about[1], flush=True)
        os._exit(4)

    sys.excepthook = show
    raise ValueError("bad row")  # <- hook


def hard_exit():
    os._exit(7)  # <- hard_exit


def hard_exit_0():
    os._exit(0)  # <- hard_exit_0


def exit_0():
    sys.exit(0)  # <- exit_0


def c_exit():
    ctypes.CDLL(None)._exit(6)


def c_exit_0():
    ctypes.CDLL(None)._exit(0)


def sigkill():
    os.kill(os.getpid(), signal.SIGKILL)


def sigterm():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


def segfault():
    ctypes.string_at(0)  # <- segfault


def abort():
    os.abort()  # <- abort


def memory():
    bytearray(1 << 60)  # <- memory


def interrupt():
    raise KeyboardInterrupt  # <- interrupt


def str_raises():
    class BadRow(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    raise BadRow  # <- str_raises


def group():
    def both():
        raise ValueError("bad row")

    try:
        both()
    except ValueError as error:
        raise ExceptionGroup("readers", [error]) from None


def torn_down():
    try:
        raise ValueError("bad row")  # <- torn_down
    finally:
        leave_the_world()
        time.sleep(0.5)


def mismatch():
    """Rank 1 is aborted by what rank 0 sends: its own line."""
    dist.all_reduce(torch.ones(4 if rank == 1 else 6))  # <- mismatch


def lock():
    held = threading.Lock()
    held.acquire()
    held.acquire()  # <- lock


def sigstop():
    os.kill(os.getpid(), signal.SIGSTOP)


def holds_gil():
    ctypes.PyDLL(None).sleep(60)  # <- holds_gil


def fifo():
    name = f"fifo-{os.getpid()}"
    os.mkfifo(name)
    Path(name).read_text()  # <- fifo


def at_exit():
    atexit.register(time.sleep, 60)
    sys.exit(0)


def loops():
    while True:  # <- loops
        pass  # <- loops


def everywhere(name):
    """Do what all ranks do in this way, or what those do that are not rank 1."""
    if name == "mismatch":
        mismatch()
    elif name == "skips":
        if rank != 1:
            step()
        else:
            time.sleep(60)  # <- skips
    elif rank == 1:
        globals()[name]()


def main():
    for number in range(STEPS):
        assert step() == size
        if number == 3:
            everywhere(way)


VICTIMS = os.environ.get("VICTIMS", "raise")
if VICTIMS == "raise" or rank == 1:
    main()
elif VICTIMS == "exit":
    try:
        main()
    except Exception as error:
        print("lost:", error, flush=True)
        sys.exit(1)
else:
    try:
        main()
    except Exception as error:
        print("lost:", error, flush=True)
