import torch
from lightning.pytorch import Trainer

def main(model):
    torch.save({}, "a.pt")  # expect: AR101
    Trainer(devices=2).fit(model)

main(None)
