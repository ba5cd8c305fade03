import torch.distributed as dist
class Trainer:
    def save(self):
        if (dist.is_initialized() and dist.get_rank() != 0) and not self.cfg.split:
            return
        dist.barrier()  # expect: AR202
