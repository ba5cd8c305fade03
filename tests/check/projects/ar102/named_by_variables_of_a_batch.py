import torch.distributed as dist

def forecast(parts):
    for batch in parts:
        names = [str(t) for t in batch["variables"]]
        open(f"{names[0]}.csv", "w")  # expect: AR102

dist.init_process_group("nccl")
forecast(make())
