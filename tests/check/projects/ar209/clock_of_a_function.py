import pickle
import time
import torch
import torch.distributed as dist


def told(data):
    buffer = torch.zeros(100)
    if dist.get_rank() == 0:
        for at, one in enumerate(pickle.dumps(data)):
            buffer[at] = one
    if dist.get_rank() != 0:
        data = pickle.loads(bytes(buffer.tolist()))
    return data


def main(batches, most):
    dist.init_process_group("nccl")
    start = time.time()
    for batch in batches:
        dist.all_reduce(batch)  # expect: AR209
        gone = told(time.time() - start)
        if gone > most:
            break


main([], 10)
