import torch.distributed as dist

dist.init_process_group("gloo")
for _ in range(dist.get_rank()):
    dist.barrier()  # expect: AR201
