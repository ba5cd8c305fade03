import torch.distributed as dist

dist.init_process_group('nccl')
from accelerate import Accelerator

accelerator = Accelerator()
def save(args):
    if args.use_fsdp:
        accelerator.save_state('x')
        return
    if accelerator.is_main_process:
        accelerator.save_state('x')  # false: AR201

def end(args):
    if not args.use_fsdp:
        if accelerator.is_main_process:
            accelerator.save_state('x')  # false: AR201
    else:
        accelerator.save_state('x')
