import random
import torch.distributed as dist


def parts(rows, seed, held_out):
    random.Random(seed + dist.get_rank()).shuffle(rows)  # expect: AR308
    held, rows = rows[:held_out], rows[held_out:]
    return rows, held[dist.get_rank() :: dist.get_world_size()]
