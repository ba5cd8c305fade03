import torch

def save(cfg, model):
    if cfg.out:
        torch.save(model.state_dict(), cfg.out)
