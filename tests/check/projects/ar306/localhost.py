# torchrun --nnodes=4 --nproc-per-node=8 train.py

import os
import torch.distributed as dist


class Runner:
    def __init__(self, device):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        if device != "gpu":
            os.environ["MASTER_ADDR"] = "localhost"
            self.join()
            dist.init_process_group("gloo", rank=self.local_rank, world_size=int(os.environ["WORLD_SIZE"]))


Runner("cpu")
