import os
from torch import distributed as dist

def start():
    dist.init_process_group(backend="gloo")

def size():
    return int(os.environ.get("WORLD_SIZE", 1))

def is_main():
    return int(os.environ.get("RANK", 0)) == 0
