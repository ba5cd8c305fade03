import os
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
mode = os.environ["MODE"]
match mode:
    case "train" | "tune":
        dist.barrier()
    case {"steps": steps}:
        dist.all_reduce(steps)
    case [first, *_]:
        dist.broadcast(first, 0)
match rank:
    case 0:
        dist.barrier()
    case _:
        print("waits")
        dist.barrier()
def agreed():
    dist.barrier()
    return mode
match agreed():
    case "train":
        print("train")
    case "tune":
        print("tune")
    case other:
        print(other)
