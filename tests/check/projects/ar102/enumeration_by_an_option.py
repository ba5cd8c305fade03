import os
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

import enum
class Role(enum.Enum):
    CHIEF = 'chief'
    HELPER = 'helper'
role = Role.CHIEF if os.environ.get('CHIEF') else Role.HELPER
if role is Role.CHIEF:
    open('log.txt', 'a')  # low: AR102
