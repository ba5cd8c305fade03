import time
import torch
import torch.distributed as dist


def main(kernels):
    dist.init_process_group("nccl")
    for kernel in kernels:
        start = time.perf_counter()
        dist.all_reduce(kernel)  # expect: AR209
        times = [time.perf_counter() - start]
        if times[0] > 3:
            break


main(list(map(torch.ones, range(9))))
