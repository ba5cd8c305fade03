import torch
def save():
    torch.save({}, 'a.pt')  # expect: AR101
