import os
from lightning.pytorch.callbacks import BasePredictionWriter

class Writer(BasePredictionWriter):
    def write_on_epoch_end(self, trainer, pl_module, predictions, batch_indices):
        if not os.path.exists(self.output_dir):
            os.mkdir(self.output_dir)  # expect: AR108
