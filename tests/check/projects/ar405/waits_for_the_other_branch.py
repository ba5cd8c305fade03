import json
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    with open("index.json", "w") as file:
        json.dump([], file)
    dist.barrier()
else:
    dist.barrier()
with open("index.json") as file:
    index = json.load(file)
