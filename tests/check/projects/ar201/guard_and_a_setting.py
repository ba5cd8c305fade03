import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

class Config:
    log_with: str = None
class Trainer:
    def __init__(self, config: Config):
        self.config = config
    def log(self):
        if rank == 0 and self.config.log_with == 'wandb':
            dist.barrier()  # expect: AR201
