import torch.distributed as dist

dist.init_process_group("nccl")

def main(out, bucket=None):
    if bucket:
        open("index.txt", "w").write(bucket)  # expect: AR102

main(**CONFIG)
