"""Data that is dealt out where the rule cannot see it, goes round once, or is that of one process on one node."""

from __future__ import annotations

import textwrap

from allranks.check.engine import Settings, check


def codes(text: str, *select: str) -> list[str]:
    files = {"train.py": textwrap.dedent(text).encode()}
    return [f.code for f in check(files, Settings(select=select)).findings]


LOADER = """
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader
    from data import Rows
    from world import comm
    def main(model):
        comm.init()
        model = DDP(model)
        rank, size = comm.get_rank(), comm.get_size()
        train_set = Rows("train", {given})
        train_loader = DataLoader(train_set, 8, num_workers=2, drop_last=True)
        for batch in train_loader:
            model(batch).backward()
    """


def test_a_data_set_is_told_its_rank_by_name() -> None:
    """Keywords say what is given, whoever has counted the processes."""
    assert codes(LOADER.format(given="comm_size=size, comm_rank=rank"), "AR301") == []
    assert codes(LOADER.format(given="size=8, channels=rank"), "AR301") == ["AR301"]


STREAM = """
    from itertools import islice
    import jax
    import webdataset as wds
    from torch.utils.data import DataLoader
    def data(urls):
        def split(src):
            yield from islice(src, jax.process_index(), None, jax.process_count())
        rows = {stream}
        return DataLoader(rows, 8, drop_last=True)
    """


def test_shards_of_a_stream_are_no_steps() -> None:
    """A function that WebDataset is given deals out shards, and not what is gone through."""
    assert codes(STREAM.format(stream="wds.WebDataset(urls, nodesplitter=split).repeat()"), "AR304") == []
    assert codes(STREAM.format(stream="wds.DataPipeline(wds.SimpleShardList(urls), split).repeat(9)"), "AR304") == []
    assert codes(STREAM.format(stream="list(split(urls))"), "AR304") == ["AR304"]


SCRIPT = """
import os
import torch.distributed as dist

def main():
    rank, size = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("nccl", rank=rank, world_size=size)

main()
"""


def confidence(command: str, program: str = "train") -> list[str]:
    other = "torchrun --nnodes=2 --nproc_per_node=8 other.py\n"
    files = {f"{program}.py": SCRIPT.encode(), "other.py": b"", "run.sh": f"{other}{command}\n".encode()}
    found = check(files, Settings(select=("AR306",), confidence="low")).findings
    return [f.confidence for f in found if f.place.path == f"{program}.py"]


def test_who_always_says_one_node_means_it() -> None:
    """Where scripts start a program with --nnodes=1 each time, the rank on the node is that in the job."""
    assert set(confidence("torchrun --nnodes=1 --nproc_per_node=8 train.py")) == {"low"}
    assert "low" not in confidence("torchrun --nproc_per_node=8 train.py")
    both = "torchrun --nnodes=1 --nproc_per_node=8 train.py\ntorchrun --nproc_per_node=8 train.py"
    assert "low" not in confidence(both)


def test_a_function_that_is_met_on_this_host_by_default_is() -> None:
    """Its parameter for the address is this host, and nobody gives another."""
    text = """
        import os
        import torch.distributed as dist
        def join(addr="ADDRESS", rank=None):
            os.environ["MASTER_ADDR"] = addr or os.environ.get("MASTER_ADDR", addr)
            rank = int(os.environ["LOCAL_RANK"])
            dist.init_process_group("nccl", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
        join()
        # torchrun --nnodes=2
        """
    assert codes(text.replace("ADDRESS", "localhost"), "AR306") == []
    assert codes(text.replace("ADDRESS", "10.0.0.1"), "AR306") == ["AR306"]


def test_names_that_are_gone_through_as_a_whole_are_not_dealt_out() -> None:
    """A function that is told the rank deals out what it finds for each of the names."""
    text = """
        import os
        import torch.distributed as dist
        def convert(names, rank, world_size):
            for name in NAMES:
                files = sorted(os.listdir(name))
                read(files[rank::world_size])
        def main(folder):
            dist.init_process_group("nccl")
            names = os.listdir(folder)
            convert(names, dist.get_rank(), dist.get_world_size())
        """
    assert codes(text.replace("NAMES", "names"), "AR307") == []
    assert codes(text.replace("NAMES", "names[rank::world_size]"), "AR307") != []


def test_a_set_of_files_has_no_order_to_lose() -> None:
    """Who is given a set of names knows that they come in no order."""
    text = """
        import os
        import torch.distributed as dist
        dist.init_process_group("nccl")
        def list_files(folder):
            names = [os.path.join(folder, name) for name in os.listdir(folder)]
            return GIVEN
        files = list_files("data")
        """
    assert codes(text.replace("GIVEN", "set(names)"), "AR307") == []
    assert codes(text.replace("GIVEN", "names"), "AR307") == ["AR307"]


MODULE = """
    from lightning.pytorch import LightningModule, Trainer
    class Model(LightningModule):
        def validation_step(self, batch, batch_idx):
            loss = self(batch).sum()
            self.log("val_loss", loss)
    trainer = Trainer(devices=4, strategy="ddp", {limit})
    trainer.fit(Model())
    """


def test_the_score_of_a_trial_says_nothing() -> None:
    """A trainer that looks at one batch tries whether all runs."""
    assert codes(MODULE.format(limit="limit_val_batches=1"), "AR310") == []
    assert codes(MODULE.format(limit="limit_val_batches=1.0"), "AR310") == ["AR310"]


def test_the_model_inside_meets_nobody() -> None:
    """A step of what is wrapped, not of what wraps it, may fail on one process alone."""
    text = """
        from torch.nn.parallel import DistributedDataParallel as DDP
        def main(model, optimizer, batch):
            model = DDP(model)
            try_out(model, optimizer, batch)
        def try_out(model, optimizer, batch):
            try:
                inner = CALLED
                loss = inner(batch).mean()
                loss.backward()
                optimizer.step()
            except Exception as error:
                print("failed", error)
        """
    assert codes(text.replace("CALLED", 'getattr(model, "module", model)'), "AR209") == []
    assert codes(text.replace("CALLED", "model"), "AR209") == ["AR209"]
