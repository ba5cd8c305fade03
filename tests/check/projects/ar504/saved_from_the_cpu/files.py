import torch

def load(name, map_location=None):
    with open(name, "rb") as f:
        return torch.load(f)
