import torch.distributed as dist

class Log:
    def write(self, path):
        open(path, "a")  # low: AR102
class Quiet:
    def write(self, path):
        pass
def make():
    if args.verbose:
        return Log()
    return Quiet()
dist.init_process_group("nccl")
log = make()
log.write("log.csv")
