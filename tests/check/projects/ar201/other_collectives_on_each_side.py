import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def player():
    dist.broadcast(torch.zeros(1), 0)
def trainer():
    dist.all_reduce(torch.zeros(1))
if rank == 0:
    player()
else:
    trainer()  # expect: AR201
dist.barrier()
