import lightning.pytorch as pl
import torch

class Keeper(pl.Callback):
    def on_train_epoch_end(self, trainer, module):
        torch.save(module.state_dict(), 'last.pt')  # expect: AR101
