import sys
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
device = sys.argv[1]
def seen():
    if device != 'cuda' and rank == 0:
        raise ValueError(device)
seen()
open('x.txt', 'w').write('x')  # expect: AR102
