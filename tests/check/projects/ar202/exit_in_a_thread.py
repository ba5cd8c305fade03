import os
import threading
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

def watch():
    if rank == 0:
        print("late")
    os._exit(0)
threading.Thread(target=watch).start()
dist.barrier()
