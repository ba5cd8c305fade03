import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
self = load()
if self.args.should_save:
    open('metrics.json', 'w')  # false: AR102
