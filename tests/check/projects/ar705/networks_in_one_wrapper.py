import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from nets import Critic, Generator, Pair, wrapped


class Trainer:
    def __init__(self, rank):
        self.net = Generator().cuda()
        self.critic = Critic()
        self.critic = self.critic.to(rank)
        self.pair = Pair(self.critic)
        self.other = wrapped(Critic())
        self.opt_g = torch.optim.Adam(self.net.parameters())
        self.opt_c = torch.optim.Adam(self.critic.parameters())
        self.opt_o = torch.optim.Adam(self.other.parameters())
        self.net, self.pair = DDP(self.net, device_ids=[rank]), DDP(self.pair, device_ids=[rank])

    def step(self, scaler, batch):
        fake = self.net(batch)
        scaler.scale(self.critic(fake).mean() + self.pair(fake) + self.other(fake)).backward()
        scaler.step(self.opt_c)
        scaler.step(self.opt_o)
        self.opt_g.step()
