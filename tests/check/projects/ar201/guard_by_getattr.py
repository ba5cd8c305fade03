import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def save(*, is_main):
    if is_main:
        torch.save({}, 'm.pt')
def hook(accelerator):
    save(is_main=getattr(accelerator, 'is_main_process', True))
hook(1)
