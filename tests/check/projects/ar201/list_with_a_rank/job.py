import os
from dataclasses import dataclass

import torch.distributed as dist


@dataclass
class Job:
    config: object


def start():
    return Job(config=[dist.get_rank(), os.path.exists("a")])


start()
