import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

class Keeper:
    def put(self, row):
        row['rank'] = dist.get_rank()
        open('metrics.json', 'w')
trainer = load()
if rank == 0:
    trainer.hooks = [Keeper()]
