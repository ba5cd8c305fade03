import torch.distributed as dist


def work(steps):
    for step in steps:
        try:
            dist.all_reduce(step)
        except Exception:
            dist.broadcast(step, 0)  # expect: AR210
            break
