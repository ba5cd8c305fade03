import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

from dataclasses import dataclass
@dataclass
class Job:
    name: str
    writes: bool = False
def train(flag):
    dist.barrier()
    job = Job('lm', flag)
    if job.writes:
        open('log.txt', 'w')  # low: AR102
