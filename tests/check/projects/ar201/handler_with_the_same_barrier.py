import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def read():
    if rank == 0:
        try:
            open('x')
        except OSError:
            dist.barrier()
        else:
            dist.barrier()
    else:
        dist.barrier()
read()
