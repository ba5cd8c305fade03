"""A daemon thread still writes the checkpoint when the program ends; the twin joins it."""

import sys
import threading
import time

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def save(weights):
    with open("last.pt", "wb") as file:
        for one in weights:
            file.write(one.numpy().tobytes())
            time.sleep(1.0)


if rank == 0:
    thread = threading.Thread(target=save, args=([torch.ones(64)] * 3,), daemon=True)
    thread.start()  # BUG AR015
    time.sleep(0.5)
    if FIXED:
        thread.join()
dist.barrier()
