"""A thread that reports to a monitor never ends; in the twin it is ended and joined."""

import sys
import threading

import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
is_over = threading.Event()
monitor = threading.Thread(target=is_over.wait)
monitor.start()  # BUG AR009
dist.barrier()
if FIXED:
    is_over.set()
    monitor.join()
dist.destroy_process_group()
