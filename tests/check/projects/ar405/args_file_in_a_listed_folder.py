import os
import torch
import torch.distributed as dist

def main(args, images, model, adapter_dir, run_dir, out_dir):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    if rank == 0:
        torch.save(args, os.path.join(out_dir, 'args.pt'))
    steps = os.listdir(out_dir)
