import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
group = dist.new_group([0, 1])
if rank in (0, 1):
    dist.all_reduce(1, group=group)
