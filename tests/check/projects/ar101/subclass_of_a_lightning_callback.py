import torch
from pytorch_lightning.callbacks import EarlyStopping
class Mine(EarlyStopping):
    def on_validation_end(self, *args):
        torch.save({}, 'a.pt')  # expect: AR101
