"""Trains as a program does that has never heard of allranks: ``unmodified.py FRAMEWORK [what happens to rank 1]``."""

import io
import sys
import time

framework, fault = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
STEPS, FAULT_AT = 300, 60

if framework == "jax":
    import jax

    jax.distributed.initialize()
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    rank = jax.process_index()
    one_each = NamedSharding(jax.make_mesh((jax.device_count(),), ("d",)), PartitionSpec("d"))
    ones = jax.make_array_from_callback((jax.device_count(),), one_each, lambda _: np.ones(1))
    add = jax.jit(lambda x: x.sum())

    def total():
        return float(add(ones))

else:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()

    def total():
        one = torch.ones(1)
        dist.all_reduce(one)
        return one.item()


def sleeps():
    time.sleep(3600)


def evaluates():
    from allranks.hang import evaluation

    with evaluation():
        sleeps()


class Full(io.BytesIO):
    def write(self, data):
        del data
        sleeps()


def saves():
    torch.save({"w": torch.ones(1)}, Full())


def sleeps_after_a_step():
    weight = torch.ones(1, requires_grad=True)
    weight.grad = torch.ones(1)
    torch.optim.SGD([weight]).step()
    sleeps()


if fault == "joins_late":
    import allranks

    time.sleep(1.5)  # meanwhile the watch has begun
    allranks.init(hang_after=2)
    fault = "sleeps"
if fault == "slow":  # rank 1; or with a number behind it, none
    for _ in range(int(sys.argv[3])):
        total()
        time.sleep(0.15 if rank == 1 and len(sys.argv) == 4 else 0.02)
    fault = ""
for step in range(STEPS):
    total()
    if step == FAULT_AT and rank == 1 and fault:
        globals()[fault]()
    time.sleep(0.005)
print(f"rank {rank} has done {STEPS} steps")
