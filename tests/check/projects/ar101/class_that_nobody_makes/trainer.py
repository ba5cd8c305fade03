import torch
from accelerate import Accelerator

class Trainer:
    def __init__(self):
        self.accelerator = Accelerator()

    def save(self, path):
        torch.save({}, path)  # low: AR101

    def run(self):
        self.save('last.pt')
