import logging
import torch.distributed as dist

dist.init_process_group('nccl')
logging.basicConfig(filename='log.txt', filemode='w')  # expect: AR102
