import lightning as L
import torch

def main(args):
    trainer = L.Trainer(gpus=1, num_nodes=2)
    trainer.fit(None)
    torch.save({}, "last.pt")  # low: AR101
