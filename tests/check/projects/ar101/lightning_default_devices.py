import lightning as L
import torch

def main(args):
    trainer = L.Trainer()
    trainer.fit(None)
    torch.save({}, "last.pt")  # low: AR101
