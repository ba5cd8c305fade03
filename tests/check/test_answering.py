"""Ways that look as if processes parted: who waits for commands, who is told what comes, models in one piece."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check


def codes(text: str) -> list[str]:
    """Return the codes of collectives that are found, in order of place."""
    files = {"train.py": textwrap.dedent(text).encode()}
    return [f.code for f in check(files, Settings(select=("AR201", "AR202", "AR203"))).findings]


SERVED = """
    import torch
    import torch.distributed as dist
    class Server:
        def run(self):
            if dist.get_rank() == 0:
                with Triton() as triton:
                    triton.bind(infer_func=self.answer)
                    triton.serve()
            else:
                self.follow()
        def follow(self):
            while True:
                command = torch.zeros(1).cuda()
                dist.{first}
                if command.item() == 1:
                    self.infer()
                else:
                    raise RuntimeError
        def infer(self):
            dist.barrier()
    """


def test_who_waits_for_commands_is_answered() -> None:
    """An endless loop that begins with what rank 0 sends follows rank 0, wherever that sends it from."""
    assert codes(SERVED.format(first="broadcast(command, 0)")) == []
    assert codes(SERVED.format(first="barrier()")) == ["AR201"]


def test_receivers_choose_by_what_they_are_sent() -> None:
    """Both sides begin with a broadcast, and the one finds in it which way the other goes."""
    text = """
        import torch.distributed as dist
        def share(data, src=0, group=None):
            if dist.get_rank() != src:
                box = [None]
                dist.broadcast_object_list(box, src=src, group=group)
                if box[0] == "nothing":
                    return None
                dist.{op}(data, group=group)
                return data
            if data is None:
                dist.broadcast_object_list(["nothing"], src=src, group=group)
                return None
            dist.broadcast_object_list(["tensor"], src=src, group=group)
            dist.broadcast(data, src=src, group=group)
            return data
        """
    assert codes(text.format(op="broadcast")) == []
    assert codes(text.replace(", group=group", "").format(op="all_reduce")) != []


PIECES = """
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    def save(model):
        torch.save(model.state_dict(), "last.pt")
    def train(run, rank, model):
        model = FSDP(model) if run.enable_fsdp else model
        if {condition}:
            if rank == 0:
                save(model)
                {then}
        else:
            save(model)
            if rank == 0:
                print("saved by all")
        dist.barrier()
    def main(run):
        dist.init_process_group("nccl")
        train(run, dist.get_rank(), torch.nn.Linear(2, 2))
    """


@pytest.mark.parametrize(
    ("condition", "then", "found"),
    [
        ("not run.enable_fsdp", "pass", []),
        ("run.strategy == ShardingStrategy.NO_SHARD", "pass", []),
        ("not run.enable_fsdp", "dist.barrier()", ["AR201"]),
        ("run.enable_fsdp", "pass", ["AR201"]),
        ("run.strategy != ShardingStrategy.NO_SHARD", "pass", ["AR201"]),
    ],
)
def test_a_model_in_one_piece_is_not_gathered(condition: str, then: str, found: list[str]) -> None:
    """Where a setting says that the model is not in parts, its state is read by rank 0 alone."""
    assert codes(PIECES.format(condition=condition, then=then)) == found


def test_a_group_that_may_be_of_some_is_asked_for() -> None:
    """Who returns is not first of its group, and the others are in one that a function picks."""
    text = """
        import torch.distributed as dist
        from megatron.core import parallel_state as mpu
        def group():
            if mpu.model_parallel_is_initialized():
                return mpu.get_data_parallel_group()
            return {world}
        def mean(values, group):
            dist.all_reduce(values, group=group)
        def run(values):
            dist.init_process_group("nccl")
            if mpu.get_tensor_model_parallel_rank() != 0:
                return
            mean(values, group=group())
        """
    assert codes(text.format(world="dist.group.WORLD")) == []
    world = text.replace("group=group())", "group=dist.group.WORLD)")
    assert codes(world.format(world="None")) == ["AR202"]


def test_what_is_listed_is_not_none() -> None:
    """A dictionary that the caller has put together stands in the place of what would be gathered."""
    text = """
        import torch.distributed as dist
        def gathered(rows):
            dist.all_reduce(rows)
            return {k: v for k, v in rows.items()}
        def show(rows, got=None):
            if dist.get_rank() != 0:
                return
            print(gathered(rows) if got is None else got)
        def main(rows):
            dist.init_process_group("nccl")
            show(rows, ARGUMENT)
        main(read())
        """
    assert codes(text.replace("ARGUMENT", "gathered(rows)")) == []
    assert codes(text.replace("ARGUMENT", "None")) == ["AR202"]


def test_pieces_whose_size_is_rounded_down_are_equal() -> None:
    """What every rank counts in its piece of a tensor that was split so is the same number."""
    text = """
        import torch.distributed as dist
        def run(rank, n, rows, loader, part):
            dist.init_process_group("nccl", rank=rank, world_size=n)
            rows = rows.split(rows.size(0) SIZE n)[rank]
            often = int(len(rows) * part)
            for step, batch in enumerate(loader):
                if step % often == 0:
                    dist.barrier()
        """
    assert codes(text.replace("SIZE", "//")) == []
    assert codes(text.replace("SIZE", "/")) == ["AR201"]


def test_a_rank_that_is_made_elsewhere_is_never_minus_one() -> None:
    """A rank that was read from what started the processes is there on all of them, or on none."""
    text = """
        import os
        import torch.distributed as dist
        def main(cfg, several):
            if several:
                cfg.local_rank = int(os.environ["SLURM_NODEID"]) * 8 if cfg.one else int(os.environ["SLURM_PROCID"])
            if cfg.local_rank == OTHER or cfg.no_cuda:
                return
            dist.barrier()
        """
    assert codes(text.replace("OTHER", "-1")) == []
    assert codes(text.replace("OTHER", "cfg.size")) == ["AR202"]
