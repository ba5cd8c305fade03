import torch.distributed as dist
from stopper import Stopper

class Trainer:
    def __init__(self, rank):
        self.rank, self.over, self.event = rank, False, None
        self.stopper = Stopper()
    def fit(self, losses):
        stopper, state = Stopper(), {"stop": False}
        for loss in losses:
            dist.all_reduce(loss)
            if self.rank == 0:
                state['stop'] = True
            state.update(agreed(state))
            if state['stop']:
                break
if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer(dist.get_rank()).fit([])
