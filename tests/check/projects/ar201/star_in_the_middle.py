import deepspeed
import torch.distributed as dist

engine, *others, scheduler = deepspeed.initialize(model=1)
if dist.get_rank() == 0:
    engine.save_checkpoint("out")  # expect: AR201
