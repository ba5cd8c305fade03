import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def setup(backend):
    if backend.is_root_node_of_tree():
        open('log.txt', 'w')  # expect: AR102
dist.barrier()
setup(None)
