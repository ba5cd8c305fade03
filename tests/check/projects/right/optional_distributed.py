import argparse
import os
import torch
import torch.distributed as dist

def setup(args):
    args.distributed = int(os.environ.get('WORLD_SIZE', 1)) > 1
    args.rank = 0
    if args.distributed:
        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        dist.init_process_group('nccl')
        args.rank = dist.get_rank()
    return args

def reduce(value, args):
    if args.distributed:
        dist.all_reduce(value)
    return value

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--out', default='model.pt')
    args = setup(parser.parse_args())
    model = torch.nn.Linear(2, 2).cuda()
    if args.distributed:
        model = torch.nn.parallel.DistributedDataParallel(model)
    for _ in range(10):
        loss = model(torch.ones(2).cuda()).mean()
        loss.backward()
        reduce(loss.detach(), args)
    if args.rank == 0:
        net = model.module if args.distributed else model
        torch.save(net.state_dict(), args.out)

if __name__ == '__main__':
    main()
