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
        self.meters = {"loss": Mean(), "best": Best()}

    def summary(self):
        return self.meters["best"].compute()


dist.init_process_group("nccl")
book = Meters(["loss", "acc"])
if dist.get_rank() == 0:
    print(book.summary())
dist.barrier()
