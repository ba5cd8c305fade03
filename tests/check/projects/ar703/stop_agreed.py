import torch.distributed as dist
from stopping import EarlyStopping

def main(model, loader, rank):
    early_stopping, other, done, step = EarlyStopping(), EarlyStopping(), False, 0
    for epoch in range(100):
        for batch in loader:
            model(batch).backward()
            step += 1
            if rank == 0:
                done = step > 1000
                logged = step
            if step % 100 == 0:
                dist.barrier()
            if agreed(done):
                break
        score = validate(model)
        if rank == 0:
            print(early_stopping.best_score)
            other(score)
        early_stopping(score)
        stop = dist_any(other.early_stop)
        if early_stopping.early_stop or stop:
            break
        if rank == 0 and other.early_stop:
            print("should stop")
