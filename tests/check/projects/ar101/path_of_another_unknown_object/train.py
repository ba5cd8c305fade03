import os
import torch
import torch.distributed as dist

class Keeper:
    def start(self, runner):
        runner.model.queue_path = os.path.join("out", 'queue.pth')

    def save(self, runner):
        torch.save({}, runner.model.queue_path)  # expect: AR101

def main(runner):
    dist.init_process_group("nccl")
    keeper = Keeper()
    keeper.start(runner)
    keeper.save(runner)

main(make())
