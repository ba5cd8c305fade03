import torch
import torch.distributed as dist
from names import files

dist.init_process_group("gloo")
for batch in files:
    image = batch["image"].to("cuda:1")
    torch.save(image, image.meta["name"].replace(".nii", ".pt"))  # expect: AR101
