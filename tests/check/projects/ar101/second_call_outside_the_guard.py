import sys
import torch
import torch.distributed as dist
def write(path):
    torch.save({}, path)  # expect: AR101
def main():
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        write("first.pt")
        if len(sys.argv) > 1:
            return
    write("last.pt")
main()
