import datetime
import torch
import torch.distributed as dist

def main():
    dist.init_process_group('gloo', timeout=datetime.timedelta(minutes=5))
    try:
        dist.monitored_barrier()
        dist.all_reduce(torch.ones(1))
    finally:
        dist.destroy_process_group()

if __name__ == '__main__':
    main()
