import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
args = load()
if args.layers <= 1:
    open('metrics.json', 'w')  # expect: AR102
