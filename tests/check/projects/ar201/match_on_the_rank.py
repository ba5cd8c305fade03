import os
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
mode = os.environ["MODE"]
match rank:
    case 0:
        dist.barrier()  # expect: AR201
match dist.get_rank():
    case 0 | 1:
        dist.barrier()  # expect: AR201
match rank:
    case 0:
        print("first")
    case _:
        dist.barrier()  # expect: AR201
match mode:
    case "train" if rank == 0:
        dist.barrier()  # expect: AR201
match rank, mode:
    case 0, "train":
        dist.barrier()  # missed: AR201
match rank:
    case int() as which if which == 0:
        dist.barrier()  # missed: AR201
