import os
import torch
import torch.distributed as dist


def next_run(root):
    taken = [int(name.partition("-")[0]) for name in os.listdir(root)]
    run = os.path.join(root, f"{max(taken, default=-1) + 1:03d}-run")
    os.makedirs(run, exist_ok=True)  # expect: AR107
    os.makedirs(os.path.join(run, "samples"), exist_ok=True)
    return run


def resumed(root):
    start = max(int(name) for name in os.listdir(root)) + 1
    for epoch in range(start, 9):
        dist.barrier()
        os.makedirs(os.path.join(root, str(epoch)), exist_ok=True)


dist.init_process_group("nccl")
next_run("runs")
resumed("epochs")
