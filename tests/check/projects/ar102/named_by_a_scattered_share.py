import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

import pandas as pd
from mpi4py import MPI
times = MPI.COMM_WORLD.scatter(all_times, root=0)
for at, time in enumerate(pd.DatetimeIndex(times)):
    open(f"{time.strftime('%Y-%m-%d')}.nc", 'w')
