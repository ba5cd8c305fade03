import torch
import torch.distributed as dist

class Pool:
    def submit(self, function, *args):
        return self.inner.submit(function, *args)

def write(pool, postfix):
    def save(state, path):
        torch.save(state, path)
    pool.submit(save, {}, f"out/{postfix}.pt")

dist.init_process_group("nccl")
write(Pool(), dist.get_rank())
