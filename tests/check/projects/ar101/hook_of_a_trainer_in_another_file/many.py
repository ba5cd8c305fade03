from lightning.pytorch import Trainer
from train import Net

Trainer(devices=8).fit(Net())
