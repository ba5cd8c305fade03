from torch import distributed as d
if d.get_rank() == 0:
    d.all_reduce(1)  # expect: AR201
