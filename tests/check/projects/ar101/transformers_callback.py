import torch
from transformers.trainer_callback import TrainerCallback
class Mine(TrainerCallback):
    def on_save(self, *args):
        torch.save({}, 'a.pt')  # expect: AR101
