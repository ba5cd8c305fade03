import lightning as L
import torch


class Average(L.Callback):
    def __init__(self):
        self.shadow = None

    def on_train_batch_end(self, trainer, pl_module, *_):
        if self.shadow is None:
            self.shadow = pl_module.state_dict()

    def on_fit_end(self, trainer, pl_module):
        if self.shadow is not None:
            torch.save(self.shadow, "average.pt")  # expect: AR101


class Loud(L.Callback):
    def on_train_batch_end(self, trainer, pl_module, *_):
        print(trainer)


L.Trainer(devices=2, callbacks=[Average(), Loud()]).fit(None)
