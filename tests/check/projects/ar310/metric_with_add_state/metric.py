import torch
from torchmetrics import Metric


class Accuracy(Metric):
    def __init__(self):
        super().__init__()
        self.add_state("right", torch.tensor(0), dist_reduce_fx="sum")
        self.classes = []

    def update(self, preds, target):
        self.add(preds == target)

    def add(self, right):
        self.right += right.sum()

    def compute(self):
        return self.right / 100
