import torch
import torch.distributed as dist

dist.init_process_group('nccl')
def save(step):
    torch.save(1, '%s%d' % (dist.get_rank(), step))
    torch.save({}, f'{step}.pt')  # expect: AR101

save(1)
