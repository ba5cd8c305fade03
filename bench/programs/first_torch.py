"""A torch rank up to its first collective: when it came how far, and the memory it has then."""

from told import proportional_bytes, since_begin, tell

stages = {"the script runs": since_begin()}

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

stages["torch is imported"] = since_begin()
dist.init_process_group("gloo")
stages["the ranks have met"] = since_begin()
mine = torch.ones(1)
dist.all_reduce(mine)
assert mine.item() == dist.get_world_size()
stages["the first collective is done"] = since_begin()
tell(stages=stages, pss=proportional_bytes())
dist.all_reduce(mine)  # nobody leaves before all have measured
dist.destroy_process_group()
