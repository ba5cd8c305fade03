import torch
import torch.distributed as dist
dist.init_process_group('nccl')
class config:
    save = False
if config.save:
    torch.save({}, 'a.pt')  # expect: AR101
