import torch.distributed as dist

def save(model, path, rank):
    try:
        state = collect(model)
    except ValueError as error:
        print(error)
        dist.barrier()  # low: AR210
        raise
    dist.barrier()
    if rank == 0:
        write(state, path)
