import lightning as L


class Spike(L.Callback):
    def __init__(self):
        self.mean = None

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        loss = outputs["loss"].item()
        if self.mean is not None and loss > 9 * self.mean:
            trainer.should_stop = True  # expect: AR209
        self.mean = loss if self.mean is None else 0.9 * self.mean + 0.1 * loss


class Plateau(L.Callback):
    def on_validation_end(self, trainer, pl_module):
        trainer.should_stop = trainer.callback_metrics["loss"] < 1


L.Trainer(devices=2, callbacks=[Spike(), Plateau()]).fit(None)
