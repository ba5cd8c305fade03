import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

from accelerate import Accelerator
with Accelerator().split_between_processes(load()) as mine:
    for item in mine:
        utt, text = item
        open(f'{utt}.txt', 'w')
