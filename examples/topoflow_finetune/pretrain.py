"""Train the baseline whose checkpoint is fine-tuned afterwards. Plain Lightning: nothing of allranks is in it.

allranks run -n 4 examples/topoflow_finetune/pretrain.py
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

import lightning.pytorch as pl
from fields import fields
from lightning.pytorch.callbacks import ModelCheckpoint
from model import Baseline
from torch.utils.data import DataLoader


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", default="runs/baseline.ckpt", help="where to write it")
    parser.add_argument("--samples", type=int, default=512, help="to train on")
    parser.add_argument("--batch-size", type=int, default=8, help="rows a rank")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> float:
    """Train as the command line says; return the loss of the validation."""
    args = arguments(argv)
    pl.seed_everything(args.seed, verbose=False)
    folder, name = os.path.split(os.path.abspath(args.checkpoint))
    keep = ModelCheckpoint(folder, name.removesuffix(".ckpt"), monitor="val_loss", enable_version_counter=False)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
        strategy="ddp",
        max_steps=args.steps,
        val_check_interval=args.steps,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        callbacks=[keep],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    train = DataLoader(fields(args.samples, seed=args.seed), args.batch_size, shuffle=True, drop_last=True)
    validate = DataLoader(fields(64, seed=args.seed + 1), 16)
    trainer.fit(Baseline(args.lr), train, validate)
    if trainer.is_global_zero:
        print(f"{args.checkpoint}: val_loss {keep.best_model_score:.4f}")
    return float(keep.best_model_score)


if __name__ == "__main__":
    main()
