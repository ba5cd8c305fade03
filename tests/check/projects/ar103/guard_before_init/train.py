import wandb
import torch.distributed as dist
from accelerate import Accelerator
import helpers
def start():
    accelerator = Accelerator()
    return accelerator

def main():
    if helpers.is_main():
        wandb.init(project='p')  # expect: AR103
    dist.init_process_group('nccl')

main()
