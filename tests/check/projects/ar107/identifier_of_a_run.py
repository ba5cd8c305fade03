import os
import uuid
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
run = os.path.join("runs", uuid.uuid4().hex)
os.makedirs(run, exist_ok=True)  # expect: AR107
part = f"last-{uuid.uuid4().hex}.part"
torch.save({}, part)
