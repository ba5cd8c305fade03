from lightning.pytorch import Callback

class Export(Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        (self.folder / "last.pt").unlink()  # missed: AR109
