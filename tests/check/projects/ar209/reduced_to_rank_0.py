import torch.distributed as dist
def fit(batches, hits, rows, goal):
    done = False
    for batch in batches:
        dist.reduce(hits, dst=0)  # missed: AR209
        dist.reduce(rows, dst=0)
        if hits.item() / rows.item() > goal:
            done = True
        if done:
            break
