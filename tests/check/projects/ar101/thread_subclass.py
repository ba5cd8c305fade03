import torch
import torch.distributed as dist

dist.init_process_group("nccl")

import threading

class Keep(threading.Thread):
    def run(self):
        torch.save({}, "last.pt")  # missed: AR101

class Writer:
    def write_log(self, name):
        open(name, "w")

class Around:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

Keep().start()
Around(Writer()).write_log("log.txt")
