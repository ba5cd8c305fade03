import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
for item in load():
    utt, text = item
    open(f'{utt}.txt', 'w')  # expect: AR102
