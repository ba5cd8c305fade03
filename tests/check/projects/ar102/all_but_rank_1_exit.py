import sys
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if len(sys.argv) > 1 and rank != 1:
    sys.exit(0)
open('x.txt', 'w').write('x')
