import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
class Net(L.LightningModule):
    def training_step(self, batch, i):
        loss = self.net(batch).mean()
        self.log('loss', loss, sync_dist=True)
        return loss
    def on_train_epoch_end(self):
        if self.trainer.is_global_zero:
            print('done')
if __name__ == '__main__':
    L.seed_everything(0)
    trainer = L.Trainer(devices=8, strategy='ddp', callbacks=[ModelCheckpoint(dirpath='out')])
    trainer.fit(Net())
