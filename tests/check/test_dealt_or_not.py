"""Data that is dealt out where the rule cannot see it, goes round once, or is that of one process on one node."""

from __future__ import annotations

import textwrap

from allranks.check.engine import Settings, check


def codes(text: str, *select: str) -> list[str]:
    files = {"train.py": textwrap.dedent(text).encode()}
    return [f.code for f in check(files, Settings(select=select)).findings]


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
