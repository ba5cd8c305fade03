import torch.distributed as dist

dist.init_process_group('nccl')
import envs

if envs.LOG_DIR:
    open('x.txt', 'w')  # false: AR102
open(f'{envs.RANK}.txt', 'w')
open(f'/tmp/{envs.LOCAL_RANK}', 'w')  # missed: AR102
