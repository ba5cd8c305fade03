import torch
import torch.distributed as dist

dist.init_process_group("nccl")

class Hook:
    def after_step(self):
        pass

class Keep(Hook):
    def after_step(self):
        torch.save({}, "last.pt")

class Log(Hook):
    def after_step(self):
        open("log.txt", "w").write("x")  # expect: AR102

def fit(hooks):
    for hook in hooks:
        hook.after_step()

hooks = [Log()]
if dist.get_rank() == 0:
    hooks.insert(0, Keep())
fit(hooks)
