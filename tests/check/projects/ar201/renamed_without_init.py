from torch.distributed import all_reduce as join, get_rank as who
if who() == 0:
    join(1)  # expect: AR201
