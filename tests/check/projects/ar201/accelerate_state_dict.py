import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def save(accelerator, model):
    if accelerator.is_main_process:
        accelerator.get_state_dict(model)
