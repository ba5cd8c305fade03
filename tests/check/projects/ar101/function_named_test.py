import torch
import torch.distributed as dist
dist.init_process_group('nccl')
def run_test():
    torch.save({}, 'a.pt')  # low: AR101
run_test()
