import torch
import torch.distributed as dist

dist.init_process_group("nccl")

def checked(function):
    def wrapper(*args):
        return function(*args)
    return wrapper

@checked
def save(state):
    torch.save(state, "last.pt")  # expect: AR101

@checked
def train(state):
    save(state)

def main():
    train({})

main()
