import lightning.pytorch as pl

class Model(pl.LightningModule):
    def on_train_end(self, repo):
        self.upload_folder(repo)
        with open('card.md', 'w') as file:  # expect: AR102
            file.write(repo)
