import torch
from lightning.pytorch import Trainer

def main(model):
    torch.save({}, "a.pt")
    Trainer(devices=1).fit(model)

main(None)
