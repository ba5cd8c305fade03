import torch.distributed as dist


def train(patience, rank):
    wait = 0
    for epoch in range(9):
        dist.barrier()  # expect: AR209
        wait = 0 if epoch else wait + 1
        if rank == 0:
            print(wait)
            if wait > patience:
                break


def train_alike(patience, rank):
    for epoch in range(9):
        dist.barrier()
        if rank == 0:
            print(epoch)
        if epoch > patience:
            break


dist.init_process_group("nccl")
train(3, dist.get_rank())
train_alike(3, dist.get_rank())
