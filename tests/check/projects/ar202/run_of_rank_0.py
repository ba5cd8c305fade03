import torch.distributed as dist
def fit(steps, patience, quick):
    run = start() if dist.get_rank() == 0 else None
    for step in range(steps):
        if run:
            dist.all_reduce(step)
    if quick or dist.get_rank() != 0:
        return
    dist.barrier()  # expect: AR202
