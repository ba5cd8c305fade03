import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def model(name):
    if rank != 0:
        dist.barrier()
    if name == 'big':
        print('big')
    else:
        return None
    if rank == 0:
        dist.barrier()
model('big')
