import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
if dist.get_world_size() > 2:
    torch.save({}, 'last.pt')  # expect: AR101
