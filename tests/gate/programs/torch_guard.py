"""Rank 0 tries every entrance to a collective alone; then both ranks show that the world is unharmed."""

import json
import os
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from allranks.errors import CollectiveOnOneRank
from allranks.world.guards.detect import one_rank

warnings.simplefilter("ignore", FutureWarning)
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
alone = [dist.new_group([r]) for r in range(2)][rank]
mesh = init_device_mesh("cpu", (2,))
world = dist.group.WORLD
assert world is not None

one, two = torch.ones(2), [torch.zeros(2), torch.zeros(2)]
ddp = DistributedDataParallel(torch.nn.Linear(2, 2))
ddp_unused = DistributedDataParallel(torch.nn.BatchNorm1d(2))
fsdp = fully_shard(torch.nn.Linear(2, 2), mesh=mesh)
sharded = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)])
loss = ddp(torch.ones(1, 2)).sum()
compiled = torch.compile(lambda x: functional.all_reduce(x * 2, "sum", world) + 1, backend="aot_eager")
graphs = []
doubled = torch.compile(lambda x: x * 2, backend=lambda graph, _: graphs.append(graph) or graph)
compiled(one)

ENTRANCES = {
    "all_reduce": lambda: dist.all_reduce(one),
    "all_reduce async": lambda: dist.all_reduce(one, async_op=True),
    "all_gather": lambda: dist.all_gather(two, one),
    "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(torch.zeros(4), one),
    "all_gather_object": lambda: dist.all_gather_object([None, None], "x"),
    "reduce": lambda: dist.reduce(one, 0),
    "reduce_scatter": lambda: dist.reduce_scatter(torch.zeros(2), two),
    "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(torch.zeros(1), one),
    "broadcast": lambda: dist.broadcast(one, 0),
    "broadcast_object_list": lambda: dist.broadcast_object_list(["x"], 0),
    "barrier": lambda: dist.barrier(),
    "monitored_barrier": lambda: dist.monitored_barrier(),
    "gather": lambda: dist.gather(one, two, 0),
    "gather_object": lambda: dist.gather_object("x", [None, None], 0),
    "scatter": lambda: dist.scatter(torch.zeros(2), two, 0),
    "scatter_object_list": lambda: dist.scatter_object_list([None], ["a", "b"], 0),
    "all_to_all": lambda: dist.all_to_all(two, [one, one]),
    "all_to_all_single": lambda: dist.all_to_all_single(torch.zeros(2), one),
    "process group method": lambda: world.allreduce([one]),
    "process group barrier": lambda: world.barrier(),
    "functional all_reduce": lambda: functional.all_reduce(one, "sum", world),
    "functional all_gather": lambda: functional.all_gather_tensor(one, 0, world),
    "functional reduce_scatter": lambda: functional.reduce_scatter_tensor(one, "sum", 0, world),
    "compiled all_reduce": lambda: compiled(one),
    "new_group": lambda: dist.new_group([0, 1]),
    "new_subgroups": lambda: dist.new_subgroups(2),
    "init_device_mesh": lambda: init_device_mesh("cpu", (1, 2)),
    "DDP constructor": lambda: DistributedDataParallel(torch.nn.Linear(2, 2)),
    "DDP buffers in forward": lambda: ddp_unused(torch.ones(3, 2)),
    "DDP backward": lambda: loss.backward(),
    "FSDP forward": lambda: fsdp(torch.ones(1, 2)),
    "DTensor redistribute": lambda: sharded.redistribute(mesh, [Replicate()]),
    "DTensor full_tensor": lambda: sharded.full_tensor(),
    "DTensor operation": lambda: (sharded.sum() * 2).full_tensor(),
    "DTensor distribute": lambda: distribute_tensor(torch.arange(4.0), mesh, [Shard(0)]),
}


def attempt(call):
    try:
        call()
    except CollectiveOnOneRank as error:
        return str(error)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return None


def allowed():
    """What needs no other rank, or only one that plays along."""
    dist.all_reduce(one, group=alone)
    functional.all_reduce(one, "sum", alone)
    dist.send(torch.full((2,), 7.0), 1)
    module = torch.nn.Linear(2, 2)
    module(torch.ones(1, 2)).sum().backward()
    torch.utils.checkpoint.checkpoint(module, torch.ones(1, 2), use_reentrant=False)
    doubled(one)
    return [sharded.to_local().tolist(), dist.get_rank(), dist.get_world_size()]


found = {}
if rank == 0:
    found["refused"] = {}
    for name, call in ENTRANCES.items():
        with one_rank(0):
            found["refused"][name] = attempt(call)
    with one_rank(0):
        found["allowed"] = allowed()
    found["compiled"] = [len(graphs)]
    doubled(one)
    found["compiled"].append(len(graphs))
else:
    received = torch.zeros(2)
    dist.recv(received, 0)
    found["received"] = received.tolist()

dist.all_reduce(one)
found["after"] = one.tolist()
found["tensor"] = sharded.full_tensor().tolist()
dist.new_group([0, 1])
print("RESULT", json.dumps(found), flush=True)
dist.destroy_process_group()
