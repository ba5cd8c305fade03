"""Faults that users meet, as they are without us: ``reproductions.py FRAMEWORK gather|metric|exception``.

And the same faults with us, all in one run: ``reproductions.py FRAMEWORK ours FOLDER``.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

framework, case, *rest = sys.argv[1:]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
# How long a call may stand still before this program calls it a hang; the real ones last half an hour.
STANDSTILL = 5.0
# Sums of 16 and 28: the metric is 44, the loss (one more for each of 8 values) 52.
rows = [4.0] * 4 if rank == 0 else [7.0] * 4

if framework == "torch":
    import torch
    import torch.distributed as dist

    def join():
        dist.init_process_group("gloo")

    def total(add):
        value = (torch.tensor(rows) + add).sum()
        dist.all_reduce(value)
        return value.item()

    def gather():
        parts = [torch.zeros(4) for _ in range(size)]
        dist.all_gather(parts, torch.tensor(rows))
        return [part.tolist() for part in parts]

else:
    import jax
    import numpy as np
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    def join():
        jax.distributed.initialize(f"127.0.0.1:{os.environ['JAX_COORDINATOR_PORT']}", size, rank)

    def split():
        mesh = Mesh(jax.devices(), "d")
        return jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("d")), np.array(rows))

    def total(add):
        return float((split() + add).sum())

    def gather():
        return multihost_utils.process_allgather(split(), tiled=True).reshape(size, 4).tolist()


def result(**found):
    print("RESULT", json.dumps(found), flush=True)


def attempt(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def end_as_hang():
    time.sleep(STANDSTILL)
    result(hung=True)
    os._exit(0)


def without_us():
    join()
    total(0)  # the connections stand, the programs are compiled
    clock = threading.Thread(target=end_as_hang, daemon=True)
    if case == "gather":
        # "Only rank 0 needs the whole": the others have gone on, to something that takes its time.
        clock.start()
        if rank == 0:
            gather()
        time.sleep(STANDSTILL + 60)
    elif case == "metric":
        # "Only rank 0 logs": its metric meets the other's loss.
        clock.start()
        seen = {"metric": total(0)} if rank == 0 else {}
        seen["loss"] = total(1)
        result(**seen)
        time.sleep(STANDSTILL + 60)
    elif case == "exception":
        # "Only rank 0 reads the file": the others go on to the next collective.
        clock.start()
        if rank == 0:
            raise FileNotFoundError("config.json")
        total(0)


def with_us():
    import allranks

    world = allranks.init(backend=framework)

    @allranks.main_rank
    def gather_alone():
        return gather()

    @allranks.main_rank
    def log_metric():
        print("metric", total(0))

    @allranks.main_rank
    def read():
        raise FileNotFoundError("config.json")

    total(0)
    found = {"gather": attempt(gather_alone), "log": attempt(log_metric), "loss": total(1), "read": attempt(read)}
    found["printed"] = [allranks.print("metric", total(0)), total(1)]
    found["on_main"] = world.on_main(lambda: {"from": world.rank})
    with allranks.collective(world, "gather", step=1):
        found["gathered"] = gather()
    found["mismatch"] = attempt(lambda: allranks.collective(world, "gather", step=2 + rank).__enter__())
    if framework == "torch":
        write_events(Path(rest[0]))
    world.barrier("end")
    result(**found)


def write_events(folder):
    from torch.utils.tensorboard import SummaryWriter

    import allranks

    with allranks.RankWriter(lambda: SummaryWriter(folder)) as writer:
        for step in range(3):
            writer.add_scalar("metric", total(step), step)


with_us() if case == "ours" else without_us()
