import sys
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
import time
def main(batches, end):
    for batch in batches:
        dist.all_reduce(batch)  # expect: AR209
        if time.time() > end:
            sys.exit()
main([], 7)
