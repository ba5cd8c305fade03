import pathlib
import torch.distributed as dist
def part(name):
    root = pathlib.Path(name)
    rows = list(root.iterdir())
    return rows[dist.get_rank() :: dist.get_world_size()]  # expect: AR307
