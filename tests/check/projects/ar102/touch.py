from pathlib import Path

import torch.distributed as dist

dist.init_process_group("nccl")
Path("done").touch()
