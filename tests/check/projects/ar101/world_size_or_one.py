import torch
import torch.distributed as dist

class Trainer:
    def __init__(self, args):
        self.args = args
        self.parts = args.distributed_world_size or 1

    def save(self):
        if self.parts == 1 or self.args.local_rank in (-1, 0):
            torch.save({}, "last.pt")

def main(args):
    dist.init_process_group("nccl")
    Trainer(args).save()

main(parse())
