import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
for step in range(9):
    if rank == 0 and step % 3 == 0:
        dist.barrier()  # expect: AR201
