import torch.distributed as dist

def save(model, path, rank):
    try:
        state = collect(model)
    except ValueError as error:
        print(error)
        dist.barrier()  # expect: AR210
        return False
    dist.all_reduce(state)
    if rank == 0:
        write(state, path)
