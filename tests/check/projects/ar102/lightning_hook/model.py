import lightning as L

class Crops(L.LightningModule):
    def training_step(self, batch, index):
        print(self.global_rank)

    def on_train_end(self):
        open("a.png", "wb")  # expect: AR102
