import os

import torch.distributed as dist
from datasets import load_from_disk


def build(cfg, rows):
    rows.save_to_disk(cfg["cache"] + ".building")
    os.rename(cfg["cache"] + ".building", cfg["cache"])


def rows_of(cfg, rows):
    if dist.get_rank() == 0 and not os.path.isdir(cfg["cache"]):
        build(cfg, rows)
    return load_from_disk(cfg["cache"])  # expect: AR405


dist.init_process_group("gloo")
rows_of(read_args(), read_rows())
