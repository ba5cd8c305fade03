import os
import shutil

import torch.distributed as dist

def keep(given, folder):
    if given:
        shutil.copy(given, os.path.join(folder, "model.yml"))  # expect: AR102

dist.init_process_group("nccl")
keep("a", "b")
