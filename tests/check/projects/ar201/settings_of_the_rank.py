import torch.distributed as dist
def train(tasks, steps):
    cfg = tasks[dist.get_rank()]
    for step in range(steps):
        if step % cfg.policy.every == 0:
            dist.barrier()
