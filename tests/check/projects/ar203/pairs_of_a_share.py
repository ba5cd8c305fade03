import torch.distributed as dist


def score(pairs):
    return sum(a == b for a, b in pairs)


def evaluate(model, rows):
    mine, pairs = rows[dist.get_rank() :: dist.get_world_size()], []
    for batch in mine:
        pairs += list(zip(batch, model(batch)))
    return score(pairs)


dist.init_process_group("nccl")
best = 0
for epoch in range(9):
    found = evaluate(model, rows)
    if found > best:
        best = found
        dist.barrier()  # expect: AR203
