"""A file with the wrapper's prefix is loaded with strict=False; the twin strips it."""

import sys

import torch
import torch.distributed as dist

FIXED = "--fixed" in sys.argv
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
model = torch.nn.Linear(4, 1)
state = {f"module.{name}": value + 1 for name, value in model.state_dict().items()}
if FIXED:
    state = {name.removeprefix("module."): value for name, value in state.items()}
model.load_state_dict(state, strict=False)  # BUG AR502
dist.barrier()
dist.destroy_process_group()
