import torch
from lib.utils.ranks import is_ready

def main(model):
    torch.distributed.init_process_group(backend="nccl")
    if is_ready():
        torch.save(model.state_dict(), "weights.pth")  # expect: AR101

if __name__ == "__main__":
    main(make_model())
