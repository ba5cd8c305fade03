import torch.distributed as dist

from accelerate import Accelerator, DeepSpeedPlugin

accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin())

def load(path):
    data = read(path)
    dist.barrier()
    return data

def main(path):
    train(accelerator, load(path))
    if dist.is_initialized():
        dist.barrier()
