import torch
import torch.distributed as dist

class Trainer:
    def __init__(self, args):
        self.args = args
        self.parts = args.x or True

    def save(self):
        if self.parts or self.args.local_rank in (-1, 0):
            torch.save({}, "last.pt")  # expect: AR101

def main(args):
    dist.init_process_group("nccl")
    Trainer(args).save()

main(parse())
