try:
    import torch
    import torch.distributed as dist
except ImportError:
    torch = None

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.all_reduce(torch.ones(1))  # expect: AR201
