"""Lightning with accelerator="gpu", two devices and fp16."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    lightning.seed_everything(0, workers=True)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    trainer = lightning.Trainer(
        accelerator="gpu",
        devices=2,
        strategy="ddp",
        precision="16-mixed",
        max_steps=6,
        logger=False,
        enable_progress_bar=False,
        default_root_dir="lightning",
    )
    trainer.fit(Model(), DataLoader(data, batch_size=4, shuffle=True, pin_memory=True))
    assert str(trainer.strategy.root_device) == f"cuda:{trainer.local_rank}"
