import torch
from lib.utils.ranks import is_main_process

def main(model):
    torch.distributed.init_process_group(backend="nccl")
    if is_main_process():
        torch.save(model.state_dict(), "weights.pth")

if __name__ == "__main__":
    main(make_model())
