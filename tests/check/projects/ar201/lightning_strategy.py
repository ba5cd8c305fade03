import lightning as L
class Net(L.LightningModule):
    def on_validation_epoch_end(self):
        if self.trainer.is_global_zero:
            self.trainer.strategy.broadcast(1.0)  # expect: AR201
