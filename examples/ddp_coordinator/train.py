"""Train a small GPT-2 with torch's DDP, and save it so that no rank, no bit and no step can be missing.

allranks run -n 4 examples/ddp_coordinator/train.py
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain, islice, repeat
from pathlib import Path

import torch
import torch.distributed as dist
from job import arguments, strike, train_step
from model import GPT2, Rows, config_of
from torch.nn.parallel import DistributedDataParallel

import allranks


def main(argv: Sequence[str] | None = None) -> list[float]:
    """Train as the command line says; return the loss of every step."""
    args = arguments(argv, __doc__.splitlines()[0])
    world = allranks.init(timeout=args.timeout)
    if world.size == 1 and not dist.is_initialized():  # DDP wants a process group, be it of one
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    if args.phases:
        tell_phases()
    torch.manual_seed(args.seed)
    config = config_of(size=args.size, layers=args.layers, heads=args.heads, context=args.seq_len)
    model = GPT2(config)
    replicas = DistributedDataParallel(model)
    if args.weights:
        wrong = args.broken == "partial-load"
        allranks.load(Path(args.weights, "model.safetensors"), into=replicas if wrong else model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    state = {"model": model, "optimizer": optimizer}
    rows = allranks.Dataset.sequence(Rows(args.seq_len), seed=args.seed).batch(args.batch_size, tail="drop")
    losses: list[float] = []
    with allranks.Checkpointer(args.out, world, every=args.save_interval, keep_last=3, integrity="blake3") as ckpt:
        restored = ckpt.restore(like=state)
        start = restored[1] if restored else 0
        loader = rows.loader(world, state=restored.extra["data"] if restored else None)
        epochs = chain.from_iterable(repeat(loader))
        with allranks.lockstep():
            for step, batch in enumerate(islice(epochs, args.max_steps - start), start=start + 1):
                losses.append(train_step(replicas, optimizer, batch.to_torch()["text"].long()))
                ckpt.resume_gate({"loss": losses[-1]}, within=0.2)  # of another batch
                strike(args, step, model)
                extra = {"config": config, "data": loader.state()}
                ckpt.maybe_save(step, state, extra=extra, metrics={"loss": losses[-1]})
        loader.close()
    told = f"loss {losses[0]:.3f} to {losses[-1]:.3f}" if losses else "nothing was left to do"
    allranks.print(f"steps {start} to {args.max_steps}: {told}; saved are {', '.join(map(str, ckpt.steps()))}")
    return losses


def tell_phases() -> None:
    """Print what each rank does for each save, as the commit protocol has it (docs/checkpoint-protocol.md)."""
    logger = logging.getLogger("allranks.checkpoint")
    if not logger.handlers:
        logger.setLevel(logging.DEBUG)
        logger.addHandler(logging.StreamHandler())


if __name__ == "__main__":
    main()
