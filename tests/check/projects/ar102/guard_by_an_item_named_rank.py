import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

opt = make_options()
opt['keeps_logs'] = rank == 0 and opt['keeps_logs']
if opt['keeps_logs']:
    open('log.txt', 'w')
if opt['rank'] == 0:
    open('options.txt', 'w')
