import wandb
from transformers import TrainerCallback
class Book(TrainerCallback):
    def __init__(self):
        self.run = None
    def setup(self):
        self.run = wandb.init()
    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.setup()
    def on_log(self, args, state, control, **kwargs):
        if self.run is not None:
            open("log.csv", "a")
