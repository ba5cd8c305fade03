import torch.distributed as dist

dist.init_process_group('nccl')
from loguru import logger

logger.add('log.txt')  # low: AR102
