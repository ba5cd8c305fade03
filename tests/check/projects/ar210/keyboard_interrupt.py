import torch.distributed as dist


def work(steps):
    for step in steps:
        try:
            dist.all_reduce(step)
        except KeyboardInterrupt:
            dist.barrier()  # low: AR210
            break
