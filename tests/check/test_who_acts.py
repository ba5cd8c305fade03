"""Who writes, and who reduces: images by the name of their file, the first GPU of a node, a flag asked twice."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check


def found(text: str, *codes: str) -> list[tuple[str, int]]:
    """Return code and line of what is found, in order of place."""
    source = textwrap.dedent(text).encode()
    findings = check({"train.py": source}, Settings(select=codes)).findings
    return [(finding.code, finding.place.line) for finding in findings]


def test_an_image_is_written_whatever_made_it() -> None:
    """What is saved under the name of an image is a file; one with the rank in its name is this process' own."""
    text = """
        import os
        from accelerate import Accelerator
        accelerator = Accelerator()
        def validate(pipe, out, step):
            for at, image in enumerate(pipe("a cat").images):
                image.save(os.path.join(out, f"{step}_{at}.png"))
                image.save(os.path.join(out, f"{step}_{at}_{accelerator.process_index}.png"))
                image.save(out)
        validate(pipe, "samples", 1)
    """
    assert found(text, "AR102") == [("AR102", 7)]


SPAWNED = """
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    def worker(gpu, gpus, nodes, node):
        rank = {rank}
        dist.init_process_group("nccl", rank=rank, world_size=gpus * nodes)
        if rank == 0:
            torch.save({{}}, "first.pt")
        if gpu == 0:
            torch.save({{}}, "last.pt")
    if __name__ == "__main__":
        mp.spawn(worker, nprocs=8, args=(8, 2, 1))
"""


@pytest.mark.parametrize("rank", ["node * gpus + gpu", "gpu + node * gpus"])
def test_the_number_that_a_node_gives_to_its_processes_is_no_rank(rank: str) -> None:
    """A function that adds the processes of other nodes to the number that it is started with has a GPU's number."""
    assert found(SPAWNED.format(rank=rank), "AR101", "AR105") == [("AR105", 11)]


@pytest.mark.parametrize(("joined", "expected"), [("i", [("AR201", 7)]), ("n", [])])
def test_the_number_that_a_process_joins_with_is_its_rank(joined: str, expected: list[tuple[str, int]]) -> None:
    """Whatever the variable is called, and however the process was started."""
    text = f"""
        import multiprocessing as mp
        import torch.distributed as dist
        def run(i, n):
            dist.init_process_group("gloo", rank={joined}, world_size=8)
            if i == 0:
                dist.barrier()
        if __name__ == "__main__":
            for at in range(8):
                mp.Process(target=run, args=(at, 8)).start()
    """
    assert found(text, "AR201") == expected


def test_who_takes_the_number_for_his_rank_is_on_one_node() -> None:
    """Where nothing is added, the number that a process is started with is its rank."""
    assert found(SPAWNED.format(rank="gpu"), "AR101", "AR105") == []


@pytest.mark.parametrize(
    "guard",
    [
        "(USED and hvd.rank() == 0) or not USED",
        "not USED or (USED and hvd.rank() == 0)",
        "not USED or hvd.rank() == 0",
    ],
)
def test_a_flag_that_is_asked_twice_says_nothing_more(guard: str) -> None:
    """``(a and b) or not a`` is ``b or not a``: rank 0 alone goes in, where there are others."""
    text = f"""
        import torch
        import horovod.torch as hvd
        from settings import USED
        hvd.init()
        def save(step):
            first = {guard}
            if first:
                torch.save({{}}, "last.pt")
        save(1)
    """
    assert found(text, "AR101") == []


def test_a_reduction_of_what_a_process_may_not_have_is_not_reached_by_all() -> None:
    """Who has finished nothing does not reduce what the others do; who has nothing may reduce zeros."""
    text = """
        import torch
        import torch.distributed as dist
        def some(finished, loss):
            numbers = torch.tensor([sum(finished), len(finished), loss])
            if len(finished) > 0:
                dist.all_reduce(numbers)
        def all_of_them(finished):
            numbers = torch.tensor([sum(finished), len(finished)])
            if len(finished) > 0:
                dist.all_reduce(numbers)
            else:
                dist.all_reduce(torch.zeros(2))
        def of_a_model(grads, world_size, x):
            flat = torch.stack(grads)
            if len(grads) > 0:
                dist.all_reduce(flat)
            if world_size > 0:
                dist.all_reduce(x)
        def count(mask):
            hits = mask.sum()
            if hits.item() != 0:
                dist.all_reduce(hits)
    """
    assert found(text, "AR203") == [("AR203", 7), ("AR203", 23)]
