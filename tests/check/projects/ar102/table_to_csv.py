import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
def show(table):
    dist.barrier()
    return table.to_csv('table.csv')  # low: AR102
