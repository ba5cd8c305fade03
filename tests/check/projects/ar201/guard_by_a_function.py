import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def is_main():
    return not dist.is_available() or not dist.is_initialized() or dist.get_rank() == 0
if is_main():
    torch.save({}, 'm.pt')
