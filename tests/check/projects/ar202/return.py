import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
def main():
    if rank != 0:
        return
    dist.barrier()  # expect: AR202
main()
