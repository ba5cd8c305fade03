import torch.distributed as dist

dist.init_process_group("nccl")

def train(loader):
    started = False
    for batch in loader:
        if started:
            open("log.txt", "w").write("x")  # expect: AR102
        else:
            started = True

train([])
