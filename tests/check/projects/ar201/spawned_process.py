import multiprocessing, os
import torch.distributed as dist
def work(rank):
    dist.init_process_group("nccl")
    if rank == 0:
        dist.barrier()  # expect: AR201
if not os.path.exists("index"):
    for rank in range(2):
        multiprocessing.Process(target=work, args=(rank,)).start()
