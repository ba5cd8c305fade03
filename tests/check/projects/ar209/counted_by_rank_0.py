import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = dist.get_rank()


def train(patience, score):
    stale = 0
    for epoch in range(9):
        dist.barrier()  # expect: AR209
        if rank == 0:
            stale = 0 if score() > 3 else stale + 1
        if stale >= patience:
            break


def watch(is_asked):
    done = False
    for epoch in range(9):
        dist.barrier()  # expect: AR209
        asked = torch.tensor(float(rank == 0 and is_asked()))
        done = done or asked.item() > 0
        if done:
            break


def watch_together(is_asked):
    for epoch in range(9):
        dist.barrier()
        asked = torch.tensor(float(rank == 0 and is_asked()))
        dist.broadcast(asked, src=0)
        if asked.item() > 0:
            break


train(patience, score)
watch(is_asked)
watch_together(is_asked)
