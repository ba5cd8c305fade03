import torch.distributed as dist

dist.init_process_group('nccl')
import torch.multiprocessing as mp

def work(global_rank, world):
    if global_rank == 0:
        dist.barrier()  # expect: AR201

def run(first, world):
    for i in range(8):
        mp.Process(target=work, args=(first + i, world)).start()
