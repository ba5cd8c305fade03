import torch
import torch.distributed as dist

class Runner:
    def say(self, text):
        if dist.get_rank() == 0:
            print(text)

    def save(self, path):
        torch.save(self.state, path)  # expect: AR101
