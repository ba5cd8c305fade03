import random
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

for epoch in range(10):
    stop = False
    if rank == 0:
        stop = random.random() < 0.5
    box = [stop if rank == 0 else None]
    dist.broadcast_object_list(box, 0)
    if rank != 0:
        stop = box[0]
    if stop:
        break
    dist.barrier()
