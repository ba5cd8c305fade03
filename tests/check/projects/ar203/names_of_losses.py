import torch
from accelerate import Accelerator

accelerator = Accelerator()
loader = accelerator.prepare(torch.utils.data.DataLoader([]))

for batch in loader:
    for name, value in batch["losses"].items():
        if name == "step":
            continue
        accelerator.gather(value)
    for name, value in batch["losses"].items():
        if value.item() > 1.0:
            accelerator.gather(value)  # expect: AR203
