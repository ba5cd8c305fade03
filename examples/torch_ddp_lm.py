"""Train a transformer on the Python standard library with torch's DDP: the twin of jax_fsdp_lm, in one file.

allranks run -n 4 examples/torch_ddp_lm.py
torchrun --nproc-per-node 4 examples/torch_ddp_lm.py
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain, islice, repeat

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import allranks
from jax_fsdp_lm.text import Text, batches_of, readable  # NumPy only, no JAX


class Block(nn.Module):
    """Attention and MLP side by side, as in the twin."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.RMSNorm(size)
        self.into, self.out = nn.Linear(size, 7 * size, bias=False), nn.Linear(5 * size, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[-1]
        qkv, hidden = self.into(self.norm(x)).split([3 * size, 4 * size], dim=-1)
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # each [rows, heads, time, features]
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return x + self.out(torch.cat([attended, F.gelu(hidden)], dim=-1))


class Transformer(nn.Module):
    def __init__(self, *, size: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.context = context
        self.embedding, self.position = nn.Embedding(256, size), nn.Parameter(torch.zeros(context, size))
        self.blocks = nn.Sequential(*(Block(size, heads) for _ in range(layers)), nn.RMSNorm(size))
        self.output = nn.Linear(size, 256, bias=False)
        nn.init.zeros_(self.output.weight)  # so that training starts from log(256) = 5.55 nats a byte

    def forward(self, text: Tensor) -> Tensor:
        """Return the logits [rows, time, 256] of the byte after each of ``text`` [rows, time]."""
        return self.output(self.blocks(self.embedding(text) + self.position[: text.shape[1]]))

    @torch.no_grad()
    def generate(self, prompt: bytes, length: int, *, seed: int) -> str:
        text, chance = torch.tensor([list(prompt)]), torch.Generator().manual_seed(seed)
        while text.shape[1] < length:
            logits = self(text[:, -self.context :])[:, -1] / 0.8
            text = torch.cat([text, torch.multinomial(logits.softmax(dim=-1), 1, generator=chance)], dim=1)
        return readable(text[0].tolist())


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=128, help="width of the model (d_model)")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=96, help="bytes of context")
    parser.add_argument("--batch-size", type=int, default=64, help="rows of the global batch, over all ranks")
    parser.add_argument("--grad-accum", type=int, default=2, help="micro-batches a step")
    parser.add_argument("--prefetch", type=int, default=4, help="batches read ahead")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=10)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> list[float]:
    """Train as the command line says; return the loss of every step."""
    args = arguments(argv)
    world = allranks.init()
    if world.size == 1 and not dist.is_initialized():  # DDP wants a process group, be it of one
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    plan = allranks.BatchPlan(args.batch_size, ranks=world.size, accumulation=args.grad_accum)
    text = Text.of_standard_library(args.seq_len + 1)
    torch.manual_seed(args.seed)
    model = Transformer(size=args.size, layers=args.layers, heads=args.heads, context=args.seq_len)
    replicas = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step + 1, args.steps))
    allranks.print(f"batch    {plan}\nmodel    {sum(leaf.size for leaf in allranks.describe(model)):,} weights")

    losses: list[float] = []
    loader = batches_of(text, plan.size, seed=args.seed).loader(world, prefetch=args.prefetch)
    epochs = chain.from_iterable(repeat(loader))  # one after the other, each proven at its end
    for step, batch in enumerate(islice(epochs, args.steps), start=1):
        losses.append(train_step(replicas, batch.to_torch()["tokens"].long(), plan))
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step == 1 or step % args.log_every == 0:
            allranks.print(f"step {step:5}   loss {np.mean(losses[-args.log_every :]):.3f}")
    taken = loader.audit()
    loader.close()
    digest = allranks.tree_digest(model, world)
    if world.is_main:  # every rank holds all the weights, so one can write alone: nothing in here is collective
        print(model.generate(b"def ", 240, seed=args.seed))
    allranks.print(f"data     {taken.samples:,} of {len(text):,} rows taken in epoch {loader.epoch}, each once")
    allranks.print(f"weights  {digest}, by agreement of {world.size} ranks")
    return losses


def train_step(replicas: DistributedDataParallel, rows: Tensor, plan: allranks.BatchPlan) -> float:
    """Leave in every replica the mean gradient of the global batch; return its mean loss. Every rank must call."""
    total = torch.zeros(())
    for number, micro_batch in enumerate(rows.chunk(plan.accumulation), start=1):
        with nullcontext() if number == plan.accumulation else replicas.no_sync():  # one all-reduce a step
            logits = replicas(micro_batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), micro_batch[:, 1:].flatten()) / plan.accumulation
            loss.backward()
            total += loss.detach()
    dist.all_reduce(total)
    return total.item() / plan.ranks


def warmup_cosine(step: int, steps: int) -> float:
    """The learning rate of ``step``, as a share of the highest: up over a tenth of the run, then down to nothing."""
    return min(10 * step / steps, 0.5 + 0.5 * math.cos(math.pi * min(step / steps, 1)))


if __name__ == "__main__":
    main()
