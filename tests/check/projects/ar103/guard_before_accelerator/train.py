import wandb
import torch.distributed as dist
from accelerate import Accelerator
import helpers
def start():
    accelerator = Accelerator()
    return accelerator

def main():
    if not dist.is_initialized() or dist.get_rank() == 0:
        wandb.init(project='p')  # expect: AR103
    accelerator = Accelerator()

main()
