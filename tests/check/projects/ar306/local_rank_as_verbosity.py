import os
import torch.distributed as dist
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
options = resolve({}, verbose=local_rank == 0)
loader = create_loader(data, options, dist.get_world_size())
