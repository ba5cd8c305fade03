import os
import torch.distributed as dist


class State:
    def __init__(self, folder):
        self.step = max(int(name) for name in os.listdir(folder))


def is_over(state, every):
    if os.path.exists('stop'):
        return True
    return False


def main(folder, batches, every):
    dist.init_process_group("nccl")
    state = State(folder)
    for batch in batches:
        dist.all_reduce(batch)  # low: AR209
        if is_over(state, every):
            break


main("runs", [], 10)
