import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
if rank == 0 and not os.path.exists('data'):
    raise SystemExit(1)
dist.barrier()
