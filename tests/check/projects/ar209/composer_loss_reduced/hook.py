import torch
from composer.core import Callback
from composer.utils import dist

class Guard(Callback):
    def after_backward(self, state, logger):
        loss = state.loss if torch.is_tensor(state.loss) else sum(state.loss)
        value = loss.detach().clone()
        dist.all_reduce(value)
        mean = value.item()
        if mean > 4 * self.base:
            state.stop_training()
