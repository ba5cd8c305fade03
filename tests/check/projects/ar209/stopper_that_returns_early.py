import torch.distributed as dist


class Stopper:
    def __init__(self):
        self.best, self.bad = 0, 0

    def step(self, score):
        if score > self.best:
            self.best, self.bad = score, 0
            return
        self.bad += 1


def fit(rows, model):
    stopper = Stopper()
    for _ in range(9):
        dist.barrier()  # expect: AR209
        mine = rows[dist.get_rank() :: dist.get_world_size()]
        stopper.step(sum(model(x) for x in mine))
        if stopper.bad > 3:
            break


dist.init_process_group("nccl")
fit(rows, model)
