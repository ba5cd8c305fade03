import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

for step, sample in enumerate(data_loader):
    torch.save(sample, '%s.pt' % step)  # expect: AR101
