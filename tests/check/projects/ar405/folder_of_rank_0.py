import os
import torch.distributed as dist
dist.init_process_group("gloo")
if args.rank == 0:
    os.makedirs(args.logs, exist_ok=True)
open(args.logs + f"/{args.rank}.log", "w")  # expect: AR405
