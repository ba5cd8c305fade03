import torch.distributed as dist

dist.init_process_group("nccl")
rank = dist.get_rank()

def hypotheses(rows, dist_size):
    paths = [f"rows_{i}.cache" for i in range(dist_size)]
    rows.shard(dist_size, rank).save_to_disk(paths[rank])
    with accelerator.main_process_first(): rows()
    return [load_from_disk(path) for path in paths]
