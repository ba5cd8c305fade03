import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
for index, batch in enumerate(loader):
    open(f'{index}.txt', 'w')  # expect: AR102
