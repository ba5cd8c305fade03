import os
import torch
import torch.distributed as dist
from transformers import AutoModel


def main(model: AutoModel, out):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        os.makedirs(out)
    torch.save({}, out + '/step.pt')  # expect: AR405


main(None, "out")
