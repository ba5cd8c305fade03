try:
    import fast
    there = True
except ImportError:
    there = False
import torch
import torch.distributed as dist
dist.init_process_group('nccl')
if not there:
    raise RuntimeError
torch.save({}, 'a.pt')  # expect: AR101
