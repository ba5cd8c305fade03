import torch
import ignite.distributed as idist
idist.initialize('nccl')
torch.save({}, 'a.pt')  # expect: AR101
