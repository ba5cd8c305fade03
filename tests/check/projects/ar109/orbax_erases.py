import torch.distributed as dist

dist.init_process_group('nccl')
import orbax.checkpoint as ocp

ocp.test_utils.erase_and_create_empty('gs://b/c')  # expect: AR109
