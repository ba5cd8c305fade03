"""Fine-tune a pretrained forecaster under Lightning: loaded on every rank, under other names, with two new parameters.

allranks run -n 4 examples/topoflow_finetune/finetune.py --checkpoint runs/baseline.ckpt
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from statistics import fmean

import lightning.pytorch as pl
import torch
from breaks import BREAKS, BY_HAND, causes, load_by_hand, weights_of
from fields import fields
from lightning.pytorch.strategies import DDPStrategy
from model import TopoFlow
from torch.utils.data import DataLoader

import allranks
from allranks.integrations.lightning import Ranks

RENAME = {"model.*.fc1.*": "climax.*.0.*", "model.*.fc2.*": "climax.*.2.*", "model.*": "climax.*"}
NEW = ("*.elevation_alpha", "*.H_scale")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", default="runs/baseline.ckpt", help="of pretrain.py")
    parser.add_argument("--out", default="runs/topoflow", help="save into this run, and go on from it if it is there")
    parser.add_argument("--samples", type=int, default=512, help="to train on")
    parser.add_argument("--batch-size", type=int, default=8, help="rows a rank")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gate", action=argparse.BooleanOptionalAction, default=True, help="compare the first loss")
    parser.add_argument("--break", dest="broken", choices=BREAKS, help="a bug, see breaks.py")
    parser.add_argument("--without-allranks", action="store_true", help="load by hand, and check nothing")
    return parser.parse_args(argv)


class FirstLoss(pl.Callback):
    """Compares the first validation, which comes before the first step, with what was measured at the save."""

    def __init__(self, ckpt: allranks.Checkpointer, ranks: Ranks, recorded: dict[str, float] | None) -> None:
        self.ckpt, self.ranks, self.recorded = ckpt, ranks, recorded

    def on_validation_end(self, _: pl.Trainer, pl_module: TopoFlow) -> None:
        first = {"val_loss": pl_module.validated[-1]}  # of this rank; the gate takes the mean
        self.ckpt.resume_gate(first, recorded=self.recorded, report=self.ranks.report)


def main(argv: Sequence[str] | None = None) -> list[float]:
    """Fine-tune as the command line says; return this rank's loss of the validations before and after."""
    args = arguments(argv)
    pl.seed_everything(args.seed, verbose=False)
    module = TopoFlow(args.lr)
    if args.without_allranks:
        return without_allranks(args, module)
    world = allranks.init()
    with allranks.Checkpointer(args.out, world, on_sigterm=False) as ckpt:
        restored = ckpt.restore({"model": module})
        start = restored[1] if restored else 0
        loads = not restored and args.broken not in BY_HAND
        ranks = Ranks(
            load=args.checkpoint if loads else None,
            rename=None if args.broken == "partial-load" else RENAME,
            allow_missing=NEW,
            verify_every=10,
        )
        recorded = None if restored else {"val_loss": recorded_in(args.checkpoint)}
        checks = [ranks, FirstLoss(ckpt, ranks, recorded)] if args.gate else [ranks]
        trainer = train(args, module, checks)
        first, last = (fmean(world.all_gather(module.validated[when])) for when in (0, -1))
        step = start + trainer.global_step
        ckpt.save(step, {"model": module}, metrics={"val_loss": last}, block=True)
    allranks.print(f"val_loss {first:.4f} before the first step, {last:.4f} after step {step}")
    allranks.print(f"weights  {allranks.tree_digest(module, world)}, by agreement of {world.size} ranks")
    return module.validated


def without_allranks(args: argparse.Namespace, module: TopoFlow) -> list[float]:
    if args.broken not in BY_HAND:
        load_by_hand(module, args.checkpoint, renamed=args.broken != "partial-load")
    trainer = train(args, module, [])
    first, last = module.validated[0], module.validated[-1]
    print(
        f"val_loss {first:.4f} before the first step (recorded: {recorded_in(args.checkpoint):.4f}), "
        f"{last:.4f} after {trainer.global_step}; the sum of all weights is {weights_of(module):.6f}"
    )
    return module.validated


def train(args: argparse.Namespace, module: TopoFlow, checks: list[pl.Callback]) -> pl.Trainer:
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
        strategy=DDPStrategy(init_sync=args.broken != "init-sync"),
        max_steps=args.steps,
        val_check_interval=args.steps,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=-1,  # the whole validation, before the first step
        callbacks=[*causes(args.broken, args.checkpoint), *checks],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    if args.broken == "rank0-load" and trainer.is_global_zero:
        load_by_hand(module, args.checkpoint)
    centred = args.broken != "normalisation"
    data = fields(args.samples, seed=args.seed, centred=centred)
    validation = fields(64, seed=args.seed + 1, centred=centred)
    trainer.fit(module, DataLoader(data, args.batch_size, shuffle=True, drop_last=True), DataLoader(validation, 16))
    return trainer


def recorded_in(path: str) -> float:
    """Return the loss that Lightning's ModelCheckpoint has put into the file."""
    callbacks = torch.load(path, weights_only=True)["callbacks"]
    (kept,) = (state for name, state in callbacks.items() if name.startswith("ModelCheckpoint"))
    return kept["best_model_score"].item()


if __name__ == "__main__":
    main()
