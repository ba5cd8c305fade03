import shutil
import torch.distributed as dist

def main(args, images, model, adapter_dir, run_dir, out_dir):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    if rank == 0:
        shutil.copytree(data_dir, out_dir)
    data = RowDataset(data_dir)
