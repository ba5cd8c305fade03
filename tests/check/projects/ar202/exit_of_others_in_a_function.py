import sys
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
def first_alone():
    if rank != 0:
        print("bye")
        sys.exit(0)
def main():
    first_alone()
    dist.barrier()  # expect: AR202
main()
