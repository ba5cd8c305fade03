import contextlib
import torch
import torch.distributed as dist

@contextlib.contextmanager
def recorded(folder):
    rank, first = dist.get_rank(), dist.get_rank() == 0

    class Recorder:
        def step(self):
            torch.save({}, f"{folder}/rank{rank}.pt")

    yield Recorder()

def main():
    dist.init_process_group("nccl")
    with recorded("out") as recorder:
        recorder.step()

main()
