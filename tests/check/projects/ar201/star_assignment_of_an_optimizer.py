import deepspeed
import torch.distributed as dist

engine, *others = deepspeed.initialize(model=1)
if dist.get_rank() == 0:
    others[0].save_checkpoint("out")
