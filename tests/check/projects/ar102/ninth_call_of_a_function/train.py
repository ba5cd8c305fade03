from helpers import keep
import torch.distributed as dist

dist.init_process_group('nccl')
keep(str(0), 'file0.txt')
keep(str(1), 'file1.txt')
keep(str(2), 'file2.txt')
keep(str(3), 'file3.txt')
keep(str(4), 'file4.txt')
keep(str(5), 'file5.txt')
keep(str(6), 'file6.txt')
keep(str(7), 'file7.txt')
keep('', 'all.txt', True)
