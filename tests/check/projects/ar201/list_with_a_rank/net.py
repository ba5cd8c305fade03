import torch.distributed as dist

dist.init_process_group("nccl")


class Net:
    def __init__(self, config):
        self.hparams.config = config

    def end(self):
        if self.hparams.config["loss"] > 0:
            dist.barrier()
        dist.all_reduce(self.total)
