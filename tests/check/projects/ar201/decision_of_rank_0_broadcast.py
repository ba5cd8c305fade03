import torch.distributed as dist
def fit(epochs, stopper):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    stop = False
    for epoch in range(epochs):
        if rank == 0:
            stop = stopper(epoch)
        box = [stop if rank == 0 else None]
        dist.broadcast_object_list(box, 0)
        if rank != 0:
            stop = box[0]
        if stop:
            break
        dist.barrier()
