import torch

def save(x):
    torch.save(x, 'x.pt')  # expect: AR101
