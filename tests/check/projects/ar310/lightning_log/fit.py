import lightning as L
from module import Net

L.Trainer(devices=8).fit(Net())
