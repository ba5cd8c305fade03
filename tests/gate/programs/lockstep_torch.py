"""torch ranks that part in one way or another: ``lockstep_torch.py CASE,CASE,... [without | content | process]``.

Under lockstep, or without; content: with check="content"; process: as one that does not import allranks. Each rank
prints RESULT and, by case, what it got: numbers, or the error; when the bad call was, and how long ago. Without,
torch's own timeout is 5 s, and a rank that hangs ends after 10 s.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

import allranks
from allranks.errors import Mismatch
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


def dict_order() -> list[float]:
    """One rank has filled a dict in another order, and goes through it."""
    names = ["bias", "weight"]
    grads = {name: torch.full((3,), float(names.index(name))) for name in (names[::-1] if odd else names)}
    for work in [dist.all_reduce(grads[name], async_op=True) for name in grads]:
        work.wait()
    return [float(grads[name][0]) for name in names]


def parameter_order() -> list[float]:
    """One rank goes through the parameters from the last to the first; they are of one shape."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.rand(3)) for _ in range(3)]
    if odd:
        parameters.reverse()
    for parameter in parameters:
        gradient = torch.ones(3)
        dist.all_reduce(gradient)
        parameter.grad = gradient
    return []


def received() -> list[float]:
    """Of the last two ranks, one receives another dtype than the other sends."""
    x = torch.ones(3, dtype=torch.int32 if odd else torch.float32)
    if odd:
        dist.recv(x, rank - 1)
    elif rank == size - 2:
        dist.send(x, size - 1)
    return [float(x[0])]


def both_receive() -> list[float]:
    """One rank receives a micro-batch more than the other sends, which waits for its answer."""
    last = size - 2, size - 1
    if rank in last:
        for _ in range(4 if odd else 3):
            if odd:
                dist.recv(torch.ones(3), last[0])
            else:
                dist.send(torch.ones(3), last[1])
        if not odd:
            dist.recv(torch.ones(3), last[1])
    return []


def transfers() -> list[float]:
    """A ring of ranks that send and receive at once, forms that change, objects, a rank that is late."""
    for step in range(40):
        mine, theirs = torch.full((3,), float(rank)), torch.zeros(3)
        left, right = (rank - 1) % size, (rank + 1) % size
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, right), dist.P2POp(dist.irecv, theirs, left)]):
            work.wait()
        assert float(theirs[0]) == left
        if step % 10 == 9 and rank < 2:
            time.sleep(0.7 * (rank == 0))
            objects = [{"step": step, "text": "x" * step}]
            dist.send_object_list(objects, 1) if rank == 0 else dist.recv_object_list(objects, 0)
            x = torch.zeros(step)
            dist.recv(x, 1) if rank == 0 else dist.send(x, 0)
    return [0.0]


def threads() -> list[float]:
    """One rank swaps two collectives of another thread, which has a group of its own."""
    group = dist.new_group(list(range(size)))
    found: list[Any] = []

    def log() -> None:
        both = [dist.ReduceOp.SUM, dist.ReduceOp.MAX]
        try:
            for step in range(6):
                for op in both[::-1] if odd and step == 5 else both:
                    dist.all_reduce(torch.ones(3), op, group=group)
        except Mismatch as error:
            found.append(error)

    thread = threading.Thread(target=log)
    thread.start()
    for _ in range(10):
        reduce()
    thread.join()
    if found:
        raise found[0]
    return []


def functional_op() -> list[float]:
    x = torch.ones(8)
    found = functional.all_reduce(x, "max" if odd else "sum", dist.group.WORLD)
    return [float((found + 0)[0])]


def healthy() -> list[float]:
    """What real programs do: DDP, functional, compiled, objects, groups, uneven splits and data, lines by role."""
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
    with model.join():  # the last rank has the most data
        for _ in range(3 + rank):
            model(torch.ones(2, 4)).sum().backward()
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
check: Any = "content" if "content" in sys.argv else "steps"
with allranks.lockstep(check=check, timeout=patience) if ours and not is_watched else nullcontext():
    main()
dist.destroy_process_group()
