"""What counts, or says of what kind something is, and is not this process' rank, whatever it is called or made of."""

from __future__ import annotations

from allranks.check.engine import Settings, check

JOIN = "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"


def _found(text: str) -> list[tuple[str, int]]:
    outcome = check({"train.py": text.encode()}, Settings(select=("AR2",)))
    return [(f.code, f.place.line) for f in outcome.findings]


GRAPH = """\
class Graph:
    def __init__(self, rank, size):
        self.rank = rank
        self.groups = [self.group(rank) for rank in range(size)]
        for rank in range(size):
            peer = turn(rank)
            if not self.passive(rank) and self.passive(peer):
                self.group(rank)

    def passive(self, rank=None):
        rank = self.rank if rank is None else rank
        return rank % 2 == 0

    def group(self, rank):
        return dist.new_group([rank, rank + 1]) if rank % 2 else None
"""


def test_a_loop_over_all_ranks_counts_the_same_everywhere() -> None:
    assert _found(f"{JOIN}{GRAPH}Graph(dist.get_rank(), dist.get_world_size())\n") == []


def test_what_a_loop_starts_has_the_number_for_its_rank() -> None:
    text = "from multiprocessing import Process\nimport torch.distributed as dist\n\n\ndef work(rank, size):\n"
    text += "    dist.init_process_group('gloo', rank=rank)\n    if rank == 0:\n        dist.barrier()\n"
    text += "\n\nfor rank in range(4):\n    Process(target=work, args=(rank, 4)).start()\n"
    assert _found(text) == [("AR201", 8)]


def test_the_place_of_a_batch_is_a_number_that_all_count_to() -> None:
    text = "def train(loader, every):\n    batches = skip(loader) if dist.get_rank() == 0 else loader\n"
    text += "    for at, batch in enumerate(batches):\n        if at % every == 0:\n            dist.barrier()\n"
    assert _found(f"{JOIN}\n\n{text}") == []


def test_the_kind_of_a_device_is_the_same_for_all_ranks() -> None:
    text = "device = f'cuda:{dist.get_rank()}'\nif 'cuda' in device or device != 'cpu':\n    dist.barrier()\n"
    assert _found(f"{JOIN}{text}") == []
    numbered = text.replace("'cpu'", "'cuda:0'")
    assert _found(f"{JOIN}{numbered}") == [("AR201", 6)]


def test_a_copy_of_a_model_that_is_never_prepared_is_whole_on_each_rank() -> None:
    text = """\
import copy
from accelerate import Accelerator, DeepSpeedPlugin


def main(net):
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin())
    averaged = copy.deepcopy(net)
    net = accelerator.prepare(net)
    if accelerator.is_main_process:
        accelerator.save_model(averaged, "averaged")
        accelerator.save_model(net, "net")
"""
    assert _found(text) == [("AR201", 11)]


def test_what_several_processes_meet_with_could_be_imported() -> None:
    text = "try:\n    from mpi4py import MPI\nexcept ImportError:\n    MPI = None\n\n\ndef share(x):\n"
    text += "    if MPI is None or MPI.COMM_WORLD.Get_rank() == 0:\n        print(x)\n    else:\n"
    text += "        MPI.COMM_WORLD.Bcast(x)\n"
    assert _found(text) == [("AR201", 11)]
    assert _found(text.replace("Get_rank() == 0", "Get_size() == 1")) == []


def test_who_is_the_first_of_all_or_of_a_node_is_told_from_the_others() -> None:
    text = """\
import torch.distributed as dist


def start(job, local_rank):
    dist.init_process_group("nccl")
    job.settings["is_master"] = local_rank == 0


def start_on_one_node(job, rank):
    job.settings["is_master"] = rank == 0


class Trainer:
    def reduce(self, scores):
        if self.settings["is_master"]:
            dist.reduce(scores, 0)
"""
    assert _found(text) == [("AR201", 16)]
