"""Each rank starts a viewer and never ends it; the twin does."""

import subprocess
import sys

import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
viewer = subprocess.Popen(["sleep", "60"])  # BUG AR009
dist.barrier()
if FIXED:
    viewer.terminate()
    viewer.wait()
dist.destroy_process_group()
