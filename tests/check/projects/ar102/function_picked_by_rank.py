import torch.distributed as dist

def make(rank):
    def write(path):
        open(path, "a")
    def nothing(*_):
        return None
    return write if rank == 0 else nothing
dist.init_process_group("nccl")
save = make(dist.get_rank())
save("log.csv")
