"""What the job with allranks and the one by hand share: their flags, a step, and the bugs on demand."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from model import GPT2
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

BREAKS = {
    "gate": "rank 0 alone reduces the loss, for its log",
    "partial-load": "weights are loaded into the model that DDP has wrapped, with strict=False: no name fits",
    "drift": "a bit of rank 2's weights flips",
    "absent-rank": "rank 3 does not come to the save: it waits for something else",
    "double-ack": "the same, and rank 1 says three times that it is ready",
    "raise": "rank 1 raises in the middle of the training",
}


def arguments(argv: Sequence[str] | None, about: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--out", default="runs/ddp", help="save into this run, and go on from its newest step")
    parser.add_argument("--weights", metavar="FOLDER", help="begin with these: checkpoint-<step>, as exported")
    parser.add_argument("--max-steps", type=int, default=20)
    parser.add_argument("--save-interval", type=int, default=8, help="steps between saves; the last is always saved")
    parser.add_argument("--size", type=int, default=64, help="width of the model")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=64, help="bytes of context")
    parser.add_argument("--batch-size", type=int, default=32, help="rows of the global batch, over all ranks")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds to wait for a rank")
    parser.add_argument("--phases", action="store_true", help="tell each phase of each save")
    parser.add_argument("--break", dest="broken", choices=BREAKS, help="a bug, see job.py")
    return parser.parse_args(argv)


def train_step(replicas: DistributedDataParallel, optimizer: torch.optim.Optimizer, rows: Tensor) -> float:
    """Take a step on this rank's rows; return the mean loss of the global batch. Every rank must call."""
    optimizer.zero_grad()
    loss = F.cross_entropy(replicas(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    dist.all_reduce(total := loss.detach())
    return total.item() / dist.get_world_size()


def strike(args: argparse.Namespace, step: int, model: GPT2) -> None:
    """What the bug does on this rank before the first save."""
    rank, bug = dist.get_rank(), args.broken
    if step != args.save_interval:
        return
    if bug == "gate" and rank == 0:
        dist.all_reduce(torch.ones(()))  # allranks: ignore[AR201] this is the bug
    if bug == "drift" and rank == 2:
        model.transformer["ln_f"].bias.data.view(torch.int32)[3] ^= 1 << 12
    if bug in ("absent-rank", "double-ack") and rank == 3:
        time.sleep(3600)  # allranks: ignore[AR803] this is the bug
    if bug == "raise" and rank == 1:
        raise ValueError("a row of text that is no text")
