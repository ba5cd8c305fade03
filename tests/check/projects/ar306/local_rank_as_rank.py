import os
import torch.distributed as dist
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
options = resolve({}, rank=local_rank)
loader = create_loader(data, options, dist.get_world_size())  # low: AR306
