import time

import torch.distributed as dist

dist.init_process_group("gloo")
start = time.time()
while time.time() - start < 60:
    dist.barrier()  # expect: AR203
