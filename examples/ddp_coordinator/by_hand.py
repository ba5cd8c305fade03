"""The same job without allranks, saved by the coordinator of the seed.

torchrun --nproc-per-node 4 examples/ddp_coordinator/by_hand.py
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from coordinator import Coordinator
from job import arguments, strike, train_step
from model import GPT2, Rows, config_of
from safetensors.torch import load_file, save_file
from torch.nn.parallel import DistributedDataParallel


class Saves:
    """What each rank does for a save: it says that it is ready, and rank 0 writes when it has heard enough of that."""

    def __init__(self, store: dist.Store, rank: int, size: int, out: Path) -> None:
        self.store, self.rank, self.out = store, rank, out
        self.coordinator, self.heard = Coordinator(size), 0

    def save(self, step: int, model: GPT2, config: dict[str, object], *, acks: int) -> None:
        self.store.add("ready", acks)
        if self.rank != 0:
            self.store.wait([f"complete-{step}"])
            return
        self.coordinator.request_save(step)
        while self.coordinator.phase == "SaveRequested":
            for _ in range(self.store.add("ready", 0) - self.heard):
                self.heard += 1
                self.coordinator.worker_ready()
            time.sleep(0.02)
        self.coordinator.start_writing()
        folder = self.out / f"checkpoint-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        save_file(model.state_dict(), folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config))
        self.coordinator.complete()
        print(f"checkpoint-{step}: {self.coordinator.phase}", flush=True)
        self.store.set(f"complete-{step}", "")
        self.coordinator.resume_training()


def main(argv: Sequence[str] | None = None) -> list[float]:
    """Train as the command line says; return the loss of every step."""
    args = arguments(argv, __doc__.splitlines()[0])
    store, rank, size = next(dist.rendezvous("env://"))
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    torch.manual_seed(args.seed)
    config = config_of(size=args.size, layers=args.layers, heads=args.heads, context=args.seq_len)
    model = GPT2(config)
    replicas = DistributedDataParallel(model)
    if args.weights:
        into = replicas if args.broken == "partial-load" else model
        into.load_state_dict(load_file(Path(args.weights, "model.safetensors")), strict=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    rows, each = Rows(args.seq_len), args.batch_size // size
    saves = Saves(dist.PrefixStore(args.out, store), rank, size, Path(args.out))
    losses = []
    for step in range(1, args.max_steps + 1):
        first = (step - 1) * args.batch_size + rank * each
        batch = torch.stack([torch.from_numpy(rows[number]["text"].copy()) for number in range(first, first + each)])
        losses.append(train_step(replicas, optimizer, batch.long()))
        strike(args, step, model)
        if step % args.save_interval == 0 or step >= args.max_steps:
            saves.save(step, model, config, acks=3 if args.broken == "double-ack" and rank == 1 else 1)
    if rank == 0:
        print(f"steps 0 to {args.max_steps}, loss {losses[0]:.3f} to {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main()
