import torch
from lightning.pytorch import LightningModule, Trainer

class Net(LightningModule):
    def validation_epoch_end(self, outputs):
        torch.save(outputs, "last.pt")  # false: AR101

if __name__ == "__main__":
    Trainer(devices=1).fit(Net())
