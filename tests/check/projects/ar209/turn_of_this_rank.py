import torch.distributed as dist

dist.init_process_group("nccl")
for turn in range(dist.get_world_size()):
    if turn == dist.get_rank():
        break
    dist.barrier()  # expect: AR209
