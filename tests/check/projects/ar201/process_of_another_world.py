import multiprocessing, os
import torch.distributed as dist
def work(rank):
    dist.init_process_group("nccl")
if not os.path.exists("index"):
    multiprocessing.Process(target=work, args=(0,)).start()
