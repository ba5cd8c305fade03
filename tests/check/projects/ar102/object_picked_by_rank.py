import torch.distributed as dist

class Log:
    def write(self, path):
        open(path, "a")
class Quiet:
    def write(self, path):
        pass
def make():
    if dist.get_rank() == 0:
        return Log()
    return Quiet()
dist.init_process_group("nccl")
log = make()
log.write("log.csv")
