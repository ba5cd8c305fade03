import torch.distributed as dist

dist.init_process_group('nccl')
import wandb

def logged(f):
    def call(*args):
        return f(*args)
    return call

@logged
def f0():
    wandb.log({})

@logged
def f1():
    wandb.log({})

@logged
def f2():
    wandb.log({})

@logged
def f3():
    wandb.log({})

@logged
def f4():
    wandb.log({})

@logged
def start():
    wandb.init(project='p')  # expect: AR103

start()
