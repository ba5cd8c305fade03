import torch
import utils

utils.init_distributed_mode(None)
torch.save({}, 'last.pt')  # expect: AR101
