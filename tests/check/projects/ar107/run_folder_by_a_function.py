import datetime
import os
import torch.distributed as dist

def stamp(exact="second"):
    written = datetime.datetime.now().strftime("%Y%m%d%H%M%S")
    if exact == "second":
        return written
    elif exact == "hour":
        return written[:-4]
    elif exact == "day":
        return written[:-6]

dist.init_process_group("nccl")
os.makedirs(f"runs/{stamp('hour')}")  # expect: AR107
