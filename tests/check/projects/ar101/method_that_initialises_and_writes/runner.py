import torch
import torch.distributed as dist

class Runner:
    def say(self, text):
        if dist.get_rank() == 0:
            print(text)

    def save(self, path):
        dist.init_process_group('nccl')
        torch.save(self.state, path)  # expect: AR101
