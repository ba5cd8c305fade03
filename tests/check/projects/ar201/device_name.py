import torch.distributed as dist

dist.init_process_group('nccl')
device = f'cuda:{dist.get_rank()}'
if 'cuda' in device or device != 'cpu':
    dist.barrier()
