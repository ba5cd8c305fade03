import torch.distributed as dist

dist.init_process_group("nccl")
[dist.barrier() for _ in range(dist.get_rank())]  # expect: AR201
[dist.barrier() for _ in range(3)]
