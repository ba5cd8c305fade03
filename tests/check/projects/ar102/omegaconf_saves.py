import torch.distributed as dist
from omegaconf import OmegaConf

def train_model(config, path):
    OmegaConf.save(config=config, f=path)  # expect: AR102

dist.init_process_group("nccl")
train_model(1, "a")
