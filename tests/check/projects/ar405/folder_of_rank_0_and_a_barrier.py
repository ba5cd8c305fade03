import os
import torch.distributed as dist
if args.rank == 0:
    os.makedirs(args.logs, exist_ok=True)
dist.barrier()
open(args.logs + f"/{args.rank}.log", "w")
