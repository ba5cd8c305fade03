import os
import lightning as L
import torch.distributed as dist
from torchvision.datasets import MNIST

class Data(L.LightningDataModule):
    def __init__(self):
        super().__init__()
        self.data = MNIST("data", download=True)

if __name__ == "__main__":
    if not os.path.exists("out"):
        os.makedirs("out")  # expect: AR108
    L.Trainer(devices=8).fit(None, Data())
    dist.barrier()
