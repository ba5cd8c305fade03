import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

class First:
    def __enter__(self):
        if rank != 0:
            dist.barrier()
    def __exit__(self, *error):
        if rank == 0:
            dist.barrier()
