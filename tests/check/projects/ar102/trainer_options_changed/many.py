import lightning.pytorch as pl
import torch

def fit(args):
    pl.Trainer(devices=8, strategy="ddp").fit(args.model)
    if torch.distributed.get_rank() == 0:
        print("done")
