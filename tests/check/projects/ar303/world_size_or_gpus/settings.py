import torch, torch.distributed as dist
class Host:
    @property
    def gpus(self):
        return dist.get_world_size() if dist.is_initialized() else torch.cuda.device_count()
