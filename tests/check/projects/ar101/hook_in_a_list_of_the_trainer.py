import torch
import torch.distributed as dist

class Hook:
    def after_step(self):
        pass

class Log(Hook):
    def after_step(self):
        print("step")

class Save(Hook):
    def after_step(self):
        torch.save({}, "last.pt")  # expect: AR101

class Trainer:
    def __init__(self):
        hooks = [Log()]
        hooks.insert(0, Save())
        self.hooks = hooks

    def train(self):
        for hook in self.hooks:
            hook.after_step()

dist.init_process_group("nccl")
Trainer().train()
