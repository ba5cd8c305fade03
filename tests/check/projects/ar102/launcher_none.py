import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
args = load()
if args.launcher == 'none':
    open('metrics.json', 'w')  # false: AR102
