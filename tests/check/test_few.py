"""Groups that are smaller than the world: who stays, or is a member, meets nobody else."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

ALONE = """\
import os
import torch.distributed as dist

def export(x):
    if int(os.environ.get("RANK", 0)) != 0:
        return
    {said}
    dist.init_process_group("gloo")
    dist.all_reduce(x)

export(1)
"""
PREPARED = """\
import os
import torch.distributed as dist

def prepare():
    if int(os.environ.get("RANK", 0)) != 0:
        return False
    forced = {{"LOCAL_RANK": "0", "WORLD_SIZE": "{size}"}}
    os.environ.update(forced)
    return True

def join():
    dist.init_process_group("gloo")

def export():
    if not prepare():
        return
    join()
    dist.barrier()

export()
"""
OF_NODES = """\
import os
import torch.distributed as dist

def start():
    if int(os.environ["LOCAL_RANK"]) != 0:
        return
    dist.init_process_group("gloo", world_size=int(os.environ["NNODES"]), rank=int(os.environ["{number}"]))
    dist.barrier()

start()
"""
ENGINES = """\
import torch.distributed as dist
from serving import join_engines

def send(x, group):
    if dist.get_rank() == 0:
        dist.broadcast(x, 0, group=group)

class Sender:
    def __init__(self):
        self.group = None
        {guard}
            self.group = join_engines(rank=0)

    def run(self, x):
        send(x, self.group)
        dist.barrier()

dist.init_process_group("nccl")
Sender().run(1)
"""
LISTED = """\
import torch.distributed as dist

class Server:
    def __init__(self):
        self.rank = dist.get_rank()

    def join(self, ranks):
        if self.rank not in ranks:
            return
        dist.init_process_group("nccl", world_size={size}, rank=ranks.index(self.rank))

    def update(self, ranks):
        dist.destroy_process_group()
        self.join(ranks)
        if self.rank not in ranks:
            return
        dist.barrier()

Server().update([0, 1])
"""
HANDED = """\
from mpi4py import MPI

class Search:
    def __init__(self, comm=MPI.COMM_WORLD):
        self.comm = comm

    def run(self):
        if self.comm is None:
            return
        {meets}

world = MPI.COMM_WORLD
comm = world if world.rank in range(0, world.size, 2) else None
Search(comm).run()
"""


def lines(program: str) -> list[int]:
    return [f.place.line for f in check({"run.py": program.encode()}, Settings(select=("AR201", "AR202"))).findings]


@pytest.mark.parametrize(
    ("said", "expected"), [('os.environ["WORLD_SIZE"] = "1"', []), ('os.environ["WORLD_SIZE"] = "2"', [8])]
)
def test_rank_0_leaves_the_world(said: str, expected: list[int]) -> None:
    assert lines(ALONE.format(said=said)) == expected


@pytest.mark.parametrize(("size", "expected"), [("1", []), ("2", [17])])
def test_rank_0_leaves_the_world_in_a_function(size: str, expected: list[int]) -> None:
    assert lines(PREPARED.format(size=size)) == expected


@pytest.mark.parametrize(("number", "expected"), [("NODE_RANK", []), ("RANK", [7])])
def test_one_process_of_each_node_joins_by_its_number(number: str, expected: list[int]) -> None:
    assert lines(OF_NODES.format(number=number)) == expected


@pytest.mark.parametrize(("guard", "expected"), [("if dist.get_rank() == 0:", []), ("if True:", [6])])
def test_a_group_that_only_rank_0_has_is_handed_on(guard: str, expected: list[int]) -> None:
    assert lines(ENGINES.format(guard=guard)) == expected


@pytest.mark.parametrize(("size", "expected"), [("len(ranks)", []), ("8", [10, 17])])
def test_those_of_a_list_make_a_world_of_as_many(size: str, expected: list[int]) -> None:
    assert lines(LISTED.format(size=size)) == expected


@pytest.mark.parametrize(("meets", "expected"), [("self.comm.barrier()", []), ("MPI.COMM_WORLD.barrier()", [10])])
def test_who_has_a_communicator_meets_on_it(meets: str, expected: list[int]) -> None:
    assert lines(HANDED.format(meets=meets)) == expected
