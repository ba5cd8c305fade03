import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
grid = load()
if grid.tp_size == 2 and grid.dp_size == 2:
    open('metrics.json', 'w')  # expect: AR102
