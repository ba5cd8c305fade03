"""Orders that are sorted in a dictionary, meetings on both sides of a guard, and a world that is one host."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check


def _found(text: str, *codes: str) -> list[str]:
    report = check({"train.py": textwrap.dedent(text).encode()}, Settings(select=codes))
    return [finding.code for finding in report.findings]


@pytest.mark.parametrize(("number", "found"), [("rank", []), ("name", ["AR102"])])
def test_the_group_of_all_knows_the_rank(number: str, found: list[str]) -> None:
    text = f"""
        import torch.distributed as dist

        dist.init_process_group("nccl")
        group = dist.group.WORLD
        open(f"log-{{group.{number}()}}.txt", "w")
        """
    assert _found(text, "AR102") == found


@pytest.mark.parametrize(("start", "found"), [("args.local_rank", []), ("args.first", ["AR301"])])
def test_files_that_settings_deal_out_are_no_whole_data_set(start: str, found: list[str]) -> None:
    text = f"""
        import torch
        from torch.nn.parallel import DistributedDataParallel
        from torch.utils.data import DataLoader

        def part(args, files):
            args.mine = files[{start} :: 8]

        def train(args, files, model):
            model = DistributedDataParallel(model)
            train_loader = DataLoader(Files(args), batch_size=args.batch_size, drop_last=True)
            for batch in train_loader:
                model(batch).sum().backward()
        """
    assert _found(text, "AR301") == found


@pytest.mark.parametrize(
    ("name", "size", "found"),
    [("rank", "hvd.size()", ["AR306"]), ("gpu", "hvd.size()", []), ("rank", "hvd.local_size()", [])],
)
def test_the_rank_on_the_node_is_kept_beside_the_number_of_all(name: str, size: str, found: list[str]) -> None:
    """As the rank among them; a number of a GPU is what it is."""
    text = f"import horovod.mxnet as hvd\n\nhvd.init()\n{name} = hvd.local_rank()\nsize = {size}\n"
    assert _found(text, "AR306") == found


def test_a_group_of_mpi_that_some_are_in_is_met_by_these_alone() -> None:
    text = """
        from mpi4py import MPI

        class Nodes:
            def __init__(self, world):
                self.node = world.Split_type(MPI.COMM_TYPE_SHARED)
                self.leader = self.node.rank == 0
                self.leaders = world.Split(0 if self.leader else MPI.UNDEFINED, world.rank)

            def fill(self, table):
                if self.leader:
                    self.leaders.Bcast(table, root=0)
                self.node.Barrier()

        Nodes(MPI.COMM_WORLD).fill([0.0])
        """
    assert _found(text, "AR201") == []


@pytest.mark.parametrize(("sent", "found"), [("comm.Bcast(drawn)", []), ("print(drawn)", ["AR203"])])
def test_a_buffer_that_mpi_has_filled_for_all_is_alike(sent: str, found: list[str]) -> None:
    text = f"""
        import random
        import numpy as np
        from mpi4py import MPI

        def main(comm):
            drawn = random.random() * np.ones(1)
            {sent}
            if drawn > 0.5:
                comm.Barrier()

        main(MPI.COMM_WORLD)
        """
    assert _found(text, "AR203") == found


@pytest.mark.parametrize(("made", "found"), [("hvd.DistributedOptimizer(inner)", ["AR201"]), ("inner", [])])
def test_a_step_of_horovods_optimizer_averages_gradients(made: str, found: list[str]) -> None:
    text = f"""
        import horovod.torch as hvd
        import torch

        def main(model, batches):
            hvd.init()
            inner = torch.optim.SGD(model.parameters(), 0.1)
            opt = {made}
            for batch in batches:
                model(batch).backward()
                if hvd.rank() == 0:
                    opt.step()

        main(get(), [1])
        """
    assert _found(text, "AR201") == found
