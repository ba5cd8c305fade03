import torch.distributed as dist
def main(parameters):
    dist.init_process_group("nccl")
    parts = [parameter.chunk(4)[dist.get_rank()] for parameter in parameters]
    for part in parts:
        dist.all_reduce(part)  # false: AR206
