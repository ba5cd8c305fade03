import os
import torch
import torch.distributed as dist

local_rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(local_rank)
dist.init_process_group('nccl')
rank, world = dist.get_rank(), dist.get_world_size()

import functools

def main_only(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        if dist.get_rank() == 0:
            return function(*args, **kwargs)
        return None
    return inner

@main_only
def log(text):
    with open('log.txt', 'a') as file:
        file.write(text)

def step(x):
    dist.all_reduce(x)
    return x.item()

for n in range(3):
    value = step(torch.ones(1).cuda())
    log(f'{n} {value}')
