import sys
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

class Enough:
    def __call__(self, score):
        if score > 0.9:
            sys.exit(0)
def stop(score):
    if score > 0.9:
        sys.exit(0)
def main(score):
    for epoch in range(9):
        dist.barrier()  # expect: AR202
        if rank == 0:
            enough(score)
enough = Enough()
main(1)
