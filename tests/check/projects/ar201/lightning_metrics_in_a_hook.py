import lightning as L
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities import rank_zero_only


class Net(L.LightningModule):
    def training_step(self, batch, index):
        loss = self.net(batch)
        self.log("loss", loss, sync_dist=True)
        return loss


class Dump(Callback):
    @rank_zero_only
    def on_train_epoch_end(self, trainer, pl_module, *rest):
        print(trainer.callback_metrics)  # missed: AR201


def report(trainer):
    if trainer.is_global_zero:
        pass


def main(devices):
    trainer = L.Trainer(devices=devices, strategy="ddp", callbacks=[Dump()])
    trainer.fit(Net())
    if trainer.is_global_zero:
        pass
    report(trainer)


main(4)
