import os
import time
import torch
import torch.distributed as dist

def save(model, folder):
    print(folder)
    torch.save(model, os.path.join(folder, "model.pt"))  # expect: AR107
    torch.save(model, os.path.join(folder, "best.pt"))

dist.init_process_group("nccl")
save(print, os.path.join("runs", time.strftime("%H%M%S")))
