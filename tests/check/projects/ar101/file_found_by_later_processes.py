import os
import torch
from lightning.pytorch import Trainer

def main(model):
    if not os.path.exists("a.pt"):
        torch.save({}, "a.pt")
    Trainer(devices=2).fit(model)

main(None)
