import torch
from trainer import Trainer

def main():
    torch.distributed.init_process_group(backend="nccl")
    trainer = Trainer("x").train()
    trainer.save_weights(10)

if __name__ == "__main__":
    main()
