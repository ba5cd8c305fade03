"""torch ranks that part in one way or another: ``lockstep_torch.py CASE,CASE,... [without | process]``.

Under lockstep, or without; process: as a program that does not import allranks is watched. Each rank
prints RESULT and, by case, what it got: numbers, or the error; when the bad call was, and how long ago. Without,
torch's own timeout is 5 s, and a rank that hangs ends after 10 s.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

import allranks
from allranks.gate.lockstep.api import watch_process

cases, ours = sys.argv[1].split(","), "without" not in sys.argv
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
odd = rank == size - 1
dist.init_process_group("gloo", timeout=timedelta(seconds=60 if ours else 5))
patience = 3 if "absent" in cases else 60
world = allranks.init() if ours else None
start = [time.monotonic()]


def reduce(op: Any = dist.ReduceOp.SUM, length: int = 17, dtype: Any = torch.float32) -> float:
    x = torch.full((length,), rank + 1, dtype=dtype)
    dist.all_reduce(x, op)
    return float(x[0])


def warm(rounds: int = 6) -> None:
    for _ in range(rounds):
        reduce()
        reduce(dist.ReduceOp.MAX)
    dist.barrier()
    start[0] = time.monotonic()


def shape() -> list[float]:
    return [reduce(length=5 if odd else 17)]


def dtype() -> list[float]:
    return [reduce(dtype=torch.int32 if odd else torch.float32)]


def reduce_op() -> list[float]:
    return [reduce(dist.ReduceOp.MAX if odd else dist.ReduceOp.SUM)]


def op() -> list[float]:
    x = torch.full((17,), float(rank))
    if odd:
        dist.all_gather([torch.zeros(17) for _ in range(size)], x)
    else:
        dist.all_reduce(x)
    return [float(x[0])]


def order() -> list[float]:
    """Swapped among calls that were all made before."""
    warm()
    both = [dist.ReduceOp.SUM, dist.ReduceOp.MAX]
    return [reduce(op) for op in (both[::-1] if odd else both)]


def groups() -> list[float]:
    """Two groups of the same ranks, used in another order."""
    both = [dist.new_group(list(range(size))) for _ in range(2)]
    found = []
    for group in both[::-1] if odd else both:
        x = torch.full((4,), float(both.index(group)))
        dist.all_reduce(x, group=group)
        found.append(float(x[0]))
    return found


def extra() -> list[float]:
    """One rank logs a metric of its own."""
    warm()
    found = [reduce()] if odd else []
    return [*found, reduce(), reduce(dist.ReduceOp.MAX)]


def absent() -> list[float]:
    if odd:
        time.sleep(12)
        return []
    return [reduce()]


def early() -> list[float]:
    """One rank has a batch less."""
    warm()
    for _ in range(1 if odd else 2):
        start[0] = time.monotonic()
        reduce()
        reduce(dist.ReduceOp.MAX)
    return []


def meets() -> list[float]:
    """One rank reduces a metric of its own, while the others meet."""
    return [reduce()] if odd else [world.barrier("save")]


def meets_in_loop() -> list[float]:
    """The others meet where one rank goes on with its loop, as foretold."""
    for i in range(7):
        if i == 6 and not odd:
            start[0] = time.monotonic()
            world.barrier("save")
        reduce()
        reduce(dist.ReduceOp.MAX)
    return []


def ddp() -> list[float]:
    """One rank leaves a backward pass out, and goes on with the metric."""
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    for step in range(6):
        if not (odd and step == 4):
            model(torch.ones(2, 4)).sum().backward()
            start[0] = time.monotonic()
        reduce(length=1)
    return []


def skipped() -> list[float]:
    """One rank leaves out a bad row, and makes up for it: all make as many calls."""
    found = []
    for step in range(6 + odd):
        try:
            start[0] = time.monotonic()
            if odd and step == 3:
                raise ValueError("bad row")
            x = torch.full((3,), float(step))
            dist.all_reduce(x)
            found.append(float(x[0]))
        except ValueError:
            continue
    return found


def epochs() -> list[float]:
    """One rank has a batch less in each epoch, and trains for more epochs."""
    found = []
    for epoch in range(5 if odd else 4):
        for _ in range(4 if odd else 5):
            x = torch.full((3,), float(epoch))
            dist.all_reduce(x)
            found.append(float(x[0]))
    return found


def no_step() -> list[float]:
    """One rank leaves out an optimizer step."""
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(6):
        model(torch.ones(2, 4)).sum().backward()
        start[0] = time.monotonic()
        if not (odd and step == 3):
            optimizer.step()
    return [float(model.module.weight.sum())]


def functional_op() -> list[float]:
    x = torch.ones(8)
    found = functional.all_reduce(x, "max" if odd else "sum", dist.group.WORLD)
    return [float((found + 0)[0])]


def healthy() -> list[float]:
    """What real programs do: DDP, functional, compiled, objects, groups, uneven splits, lines that differ by role."""
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    twice = torch.compile(lambda a: 2 * functional.all_reduce(a, "sum", dist.group.WORLD), backend="aot_eager")
    halves = [dist.new_group([0]), dist.new_group(list(range(size)))]
    found = 0.0
    for step in range(30):
        model(torch.ones(2, 4)).sum().backward()
        found += reduce() + float(twice(torch.ones(3))[0])
        if rank == 0:
            dist.broadcast(torch.ones(3), src=0)
        else:
            dist.broadcast(torch.zeros(3), src=0)
        parts = [torch.zeros(step % 3 + 1) for _ in range(size)]
        dist.all_gather(parts, torch.ones(step % 3 + 1), group=halves[1])
        dist.all_reduce(torch.ones(rank + 1), group=halves[0]) if rank == 0 else None
        objects: list[Any] = [None] * size
        dist.all_gather_object(objects, "x" * (rank + step))
        whole, into = torch.arange(2.0 * size), torch.zeros(2)
        dist.reduce_scatter_tensor(into, whole)
        dist.all_gather_into_tensor(whole, into)
        mine, theirs = [rank + 1] * size, [r + 1 for r in range(size)]
        dist.all_to_all_single(torch.zeros(sum(theirs)), torch.ones(sum(mine)), theirs, mine)
        if step % 10 == 9:
            dist.monitored_barrier(timeout=timedelta(seconds=30))
            dist.barrier(group=halves[1])
            dist.barrier()
    return [found]


def main() -> None:
    results = {}
    if not ours:
        faulthandler.dump_traceback_later(10, exit=True)
    for case in cases:
        start[0] = time.monotonic()
        try:
            results[case] = {"numbers": globals()[case]()}
        except Exception as error:
            results[case] = {"error": f"{type(error).__name__}: {error}"}
            if case == cases[-1]:
                raise
        finally:
            results.setdefault(case, {}).update(began=start[0], seconds=time.monotonic() - start[0])
            print(f"RESULT {json.dumps(results)}\n", end="", flush=True)  # in one piece


is_watched = "process" in sys.argv
if is_watched:
    watch_process(timeout=patience)
with allranks.lockstep(timeout=patience) if ours and not is_watched else nullcontext():
    main()
dist.destroy_process_group()
