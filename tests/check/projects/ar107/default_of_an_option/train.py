import os, torch.distributed as dist
from options import parse
def main():
    dist.init_process_group("gloo")
    args = parse()
    write(args)
def write(args):
    os.makedirs(args.output)  # missed: AR107
    open(f"{args.output}/{dist.get_rank()}.txt", "w").write("1")
    dist.barrier()
    print([open(f"{args.output}/{rank}.txt").read() for rank in range(8)])
main()
