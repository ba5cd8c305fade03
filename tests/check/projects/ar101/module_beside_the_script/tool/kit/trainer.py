import torch
from utils import get_rank

def save(state):
    if get_rank() == 0:
        torch.save(state, 'last.pt')
