from collections import defaultdict
import torch.distributed as dist


class Mean:
    def agree(self):
        dist.barrier()


class Log:
    def __init__(self):
        self.meters = defaultdict(Mean)

    def agree(self):
        for mean in self.meters.values():
            mean.agree()


dist.init_process_group("nccl")
log = Log()
if dist.get_rank() == 0:
    log.agree()  # expect: AR201
log.agree()
