import torch
from torch.nn.parallel import DistributedDataParallel


class Learner:
    def learn(self, args, config):
        self.model = DistributedDataParallel(self.model.cuda())
        self.resume(args, config)

    def resume(self, args, config):
        self.optimizer.load_state_dict(torch.load(args.resume))  # expect: AR504
