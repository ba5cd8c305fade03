import time
import torch
import torch.distributed as dist
from transformers import Trainer, TrainerCallback


class Clock(TrainerCallback):
    def __init__(self):
        self.end = time.time() + 9

    def on_step_end(self, args, state, control, **kwargs):
        if time.time() > self.end:
            control.should_training_stop = True  # expect: AR209


class AgreedClock(TrainerCallback):
    def __init__(self):
        self.end = time.time() + 9

    def on_step_end(self, args, state, control, **kwargs):
        late = torch.tensor(float(time.time() > self.end))
        dist.all_reduce(late)
        if late > 0:
            control.should_training_stop = True


Trainer(model=None, callbacks=[Clock(), AgreedClock()]).train()
