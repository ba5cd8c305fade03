import torch
import torch.distributed as dist

dist.init_process_group('gloo', world_size=2, rank=rank)
torch.save(1, 'last.pt')  # expect: AR101
