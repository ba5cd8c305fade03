import sys
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

import signal
def stop(number, frame):
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
if rank == 0:
    signal.signal(signal.SIGINT, stop)
dist.barrier()
