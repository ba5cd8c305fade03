import torch, os
import torch.distributed as dist
import torch.multiprocessing as mp
def worker(rank, world, path):
    os.environ['MASTER_ADDR'] = 'localhost'
    os.environ['MASTER_PORT'] = '29500'
    torch.cuda.set_device(rank)
    dist.init_process_group('nccl', rank=rank, world_size=world)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).cuda(rank), device_ids=[rank])
    for _ in range(10):
        model(torch.ones(2).cuda(rank)).sum().backward()
    if rank == 0:
        torch.save(model.module.state_dict(), path)
    dist.destroy_process_group()
if __name__ == '__main__':
    mp.spawn(worker, args=(8, 'a.pt'), nprocs=8)
