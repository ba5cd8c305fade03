import torch.distributed as dist

dist.init_process_group('nccl')
import sys
from loguru import logger

logger.add(sys.stderr)  # low: AR102
