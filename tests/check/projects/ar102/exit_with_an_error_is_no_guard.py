import sys
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
device = sys.argv[1]
if device != 'cuda' and rank == 0:
    sys.exit(1)
open('x.txt', 'w').write('x')  # expect: AR102
