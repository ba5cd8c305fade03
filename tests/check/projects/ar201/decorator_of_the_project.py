import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def on_main(f):
    def wrapper(*args, **kwargs):
        if dist.get_rank() == 0:
            return f(*args, **kwargs)
    return wrapper
@on_main
def save():
    torch.save({}, 'm.pt')
save()
