import sys
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

def main():
    dist.barrier()
    if rank != 0:
        sys.exit(0)
    print("done")
main()
print("alone")
