import logging
import torch.distributed as dist

dist.init_process_group('nccl')
logging.FileHandler('log.txt', mode='w')  # expect: AR102
