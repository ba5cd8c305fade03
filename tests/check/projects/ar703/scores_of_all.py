import torch.distributed as dist

def main(rank, folder, score):
    dist.init_process_group("nccl")
    if rank == 0:
        writer = SummaryWriter(folder)
    scores = {}
    if folder:
        scores.update(score())
    for name in scores:
        writer.add_scalar(name, scores[name])  # expect: AR703
