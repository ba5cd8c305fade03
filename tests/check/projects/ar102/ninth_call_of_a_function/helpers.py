import torch.distributed as dist


def is_first():
    return dist.get_rank() == 0


def keep(data, path, everywhere=False):
    if path is None:
        return
    if is_first() or everywhere:
        with open(path, "w") as file:  # missed: AR102
            file.write(data)
