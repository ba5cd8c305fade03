import torch
import torch.distributed as dist

dist.init_process_group("nccl")

class Keep:
    def after_epoch(self, trainer):
        torch.save({}, "last.pt")

def fit(hooks):
    for hook in hooks:
        hook.after_epoch(None)

fit([Keep()] if dist.get_rank() == 0 else [])
