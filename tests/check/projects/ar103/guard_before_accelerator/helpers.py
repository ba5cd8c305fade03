import torch.distributed as dist

def ready():
    if not dist.is_available():
        return False
    if not dist.is_initialized():
        return False
    return True

def get_rank():
    if not ready():
        return 0
    return dist.get_rank()

def rank_or_zero():
    return dist.get_rank() if dist.is_initialized() else 0

def is_main():
    return get_rank() == 0

def is_first():
    if dist.is_initialized():
        return dist.get_rank() == 0
    return True
