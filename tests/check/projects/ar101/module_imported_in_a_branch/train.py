import os
import torch.distributed as dist
dist.init_process_group('nccl')

def a():
    import inside
def b():
    from inside import save
    save()
if os.environ["WHAT"] == "a":
    a()
else:
    b()
