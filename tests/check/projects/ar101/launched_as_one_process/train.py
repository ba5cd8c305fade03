import torch
import torch.distributed as dist

if dist.is_initialized():
    dist.barrier()
torch.save(1, 'last.pt')  # low: AR101
