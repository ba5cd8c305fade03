import lightning as L
import torch


class Net(L.LightningModule):
    def validation_step(self, batch, index):
        loss = self(batch).mean()
        self.log("val_loss", loss)  # expect: AR310
        return loss

    def evaluated(self, batch):
        score = self.seen(batch)
        self.log_dict({"val/score": torch.stack(score).mean()})
