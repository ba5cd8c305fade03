import time
import torch
import torch.distributed as dist


def main(kernels):
    dist.init_process_group("nccl")
    for kernel in kernels:
        start = time.perf_counter()
        dist.all_reduce(kernel)
        times = [time.perf_counter() - start]
        if len(times) == 0:
            break


main(list(map(torch.ones, range(9))))
