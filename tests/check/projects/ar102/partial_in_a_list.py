import functools
import os
import torch.distributed as dist


def put_in(path, record):
    with open(path, "a") as file:  # low: AR102
        file.write(str(record))


def lines(folder):
    return functools.partial(put_in, os.path.join(folder, "metrics.jsonl"))


class Loop:
    def __init__(self, sinks):
        self.sinks = sinks

    def tell(self, record):
        for sink in self.sinks:
            sink(record)


dist.init_process_group("nccl")
loop = Loop([lines("/shared")])
loop.tell("begins")
