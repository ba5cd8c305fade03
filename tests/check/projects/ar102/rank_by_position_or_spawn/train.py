import torch.multiprocessing as mp
from work import run

def main(n):
    if n == 1:
        run(0, 1)
    else:
        mp.spawn(run, args=(n,), nprocs=n)

if __name__ == '__main__':
    main(4)
