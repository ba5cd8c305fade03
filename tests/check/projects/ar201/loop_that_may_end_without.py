import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

def cancelled(tags):
    if rank == 0:
        for tag in tags:
            if tag == 'stop':
                dist.barrier()
                break
    else:
        dist.barrier()  # expect: AR201
cancelled(['a'])
