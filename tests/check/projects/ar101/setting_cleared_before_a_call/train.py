import torch.distributed as dist
from saving import save

def main(cfg):
    dist.init_process_group()
    if dist.get_rank() != 0:
        cfg.out = None
    save(cfg, make_model())

if __name__ == "__main__":
    main(make_settings())
