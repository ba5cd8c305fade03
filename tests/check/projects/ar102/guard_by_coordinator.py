import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
import hostlib.comm as hc
if hc.is_coordinator():
    open('metrics.json', 'w')
