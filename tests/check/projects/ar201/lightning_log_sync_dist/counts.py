from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.utilities.rank_zero import rank_zero_only


class Counts(Callback):
    @rank_zero_only  # expect: AR201
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        number = sum(p.numel() for p in pl_module.model.parameters())
        pl_module.log("parameters", float(number), sync_dist=True)
