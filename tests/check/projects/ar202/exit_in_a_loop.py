import sys
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
def main(batches):
    for batch in batches:
        dist.all_reduce(batch)  # expect: AR202
        if rank == 0 and batch.sum() > 7:
            sys.exit()
main([])
