import multiprocessing as mp
import torch.distributed as dist
def run(i, n):
    dist.init_process_group("gloo", rank=n, world_size=8)
    if i == 0:
        dist.barrier()
if __name__ == "__main__":
    for at in range(8):
        mp.Process(target=run, args=(at, 8)).start()
