import torch
import torch.distributed as dist
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader

def main():
    dist.init_process_group('gloo')
    rows = load_dataset('parquet', data_files='data/*.parquet', streaming=True, split='train')
    rows = split_dataset_by_node(rows, rank=dist.get_rank(), world_size=dist.get_world_size())
    for batch in DataLoader(rows, batch_size=8):
        print(len(batch))

if __name__ == '__main__':
    main()
