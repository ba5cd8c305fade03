from multiprocessing import Process
import torch.distributed as dist


def work(rank, size):
    dist.init_process_group('gloo', rank=rank)
    if rank == 0:
        dist.barrier()  # expect: AR201


for rank in range(4):
    Process(target=work, args=(rank, 4)).start()
