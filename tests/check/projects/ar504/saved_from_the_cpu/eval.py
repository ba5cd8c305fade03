import os
import torch
import torch.distributed as dist
from files import load
from kept import read, read_pretrained, write

class Evaluator:
    def __init__(self, path, own):
        self.model = torch.nn.Linear(2, 2).cuda()

if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    net = torch.nn.Linear(2, 2).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    read(net, "x"); write(net, "x")
