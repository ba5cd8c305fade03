import torch.distributed as dist


class Mean:
    def __init__(self, name=""):
        self.name, self.total = name, 0

    def compute(self):
        dist.all_reduce(self.total)
        return self.total


class Best:
    def compute(self):
        return 1


class Meters:
    def __init__(self, names):
        self.meters = {n: Mean() for n in names}

    def summary(self):
        return [m.compute() for k, m in self.meters.items()]


dist.init_process_group("nccl")
book = Meters(["loss", "acc"])
if dist.get_rank() == 0:
    print(book.summary())  # expect: AR201
dist.barrier()
