import torch.distributed as dist

import wandb
class Trainer:
    def __init__(self):
        self.run = None
        if args.verbose:
            self.start()
    def start(self):
        self.run = wandb.init()
    def log(self):
        if self.run is None:
            return
        open("log.csv", "a")  # low: AR102
dist.init_process_group("nccl")
Trainer().log()
