import numpy as np
import torch.distributed as dist


def rows(path, rank, world):
    with open(path) as file:
        for i, line in enumerate(file):
            if i % world == rank:  # expect: AR304
                yield line


def main(model):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    found = [model(row).backward() for row in rows("rows.txt", rank, world)]
    np.save(f"part-{rank}.npy", found)
    dist.barrier()


if __name__ == "__main__":
    main(load())
