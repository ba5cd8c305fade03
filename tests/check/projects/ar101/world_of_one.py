import torch
import torch.distributed as dist

dist.init_process_group('nccl', world_size=1, rank=0)
torch.save(1, 'last.pt')  # false: AR101
