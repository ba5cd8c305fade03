import torch
from transformers import Trainer
class Mine(Trainer):
    def evaluation_loop(self):
        torch.save({}, 'a.pt')  # expect: AR101
