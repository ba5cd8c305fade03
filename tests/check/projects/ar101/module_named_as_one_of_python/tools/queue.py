import torch


def put(x):
    torch.save(x, 'last.pt')  # expect: AR101
