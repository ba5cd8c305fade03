import torch.distributed as dist
dist.init_process_group('gloo')
open(path + '.txt', 'w').close()  # expect: AR102
