import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
for x in range(9):
    if rank == 0:
        break
    dist.barrier()  # expect: AR209
