import lightning.pytorch as pl

def fit_model(model):
    pl.Trainer(strategy='ddp').fit(model)
