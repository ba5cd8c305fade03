import sys
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

def main(code):
    if rank == 1:
        sys.exit(1)
    if rank == 2:
        sys.exit("no data")
    if rank == 3:
        raise SystemExit(2)
    if rank == 4:
        raise RuntimeError("no data")
    dist.barrier()
main(1)
