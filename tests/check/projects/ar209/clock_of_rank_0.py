import time
import torch
import torch.distributed as dist


def gathered(data):
    if not dist.is_initialized():
        return [data]
    whole = [None] * dist.get_world_size()
    dist.all_gather_object(whole, data)
    return whole


def of_first(data):
    return gathered(data if dist.get_rank() == 0 else None)[0]


def times(began, last, limit):
    now = time.time()
    if limit < float("inf"):
        train, log = of_first((now - began, now - last))
    else:
        train, log = now - began, now - last
    return train, log


def main(limit):
    dist.init_process_group("gloo")
    began = last = time.time()
    while True:
        dist.all_reduce(torch.ones(1))  # false: AR209
        train, log = times(began, last, limit)
        if train > limit:
            break
        last = time.time()


main(float(input()))
