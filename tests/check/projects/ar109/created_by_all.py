import os
import torch.distributed as dist

def publish(where):
    claim = where + ".claim"
    os.close(os.open(claim, os.O_CREAT))
    os.unlink(claim)  # expect: AR109

dist.init_process_group("nccl")
publish("/shared/last")
