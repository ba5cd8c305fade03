import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
def first_alone():
    if rank != 0:
        print()
first_alone()
open('x.txt', 'w').write('x')  # expect: AR102
