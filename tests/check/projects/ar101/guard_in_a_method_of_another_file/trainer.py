import torch

class Trainer:
    def __init__(self, path):
        self.rank = torch.distributed.get_rank()
        self.net = make_net()

    def train(self):
        self.training = True
        self.steps = list_of_steps(self.training, self.net, more=True)
        self.net.train()
        self.others = [other.train() for other in self.net.others if other.is_ready and other.is_known]
        return self

    def save_weights(self, it):
        if self.rank != 0:
            return
        torch.save(self.net.state_dict(), "weights.pth")
