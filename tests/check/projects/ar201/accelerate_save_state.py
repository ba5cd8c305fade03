import torch.distributed as dist

dist.init_process_group('nccl')
from accelerate import Accelerator

accelerator = Accelerator()
def save(args):
    print(args.use_fsdp)
    if accelerator.is_main_process:
        accelerator.save_state('x')  # expect: AR201
