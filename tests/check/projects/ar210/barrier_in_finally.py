import torch.distributed as dist

try:
    train()
finally:
    dist.barrier()  # low: AR210
