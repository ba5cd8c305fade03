import lightning as L
from metric import Accuracy

L.Trainer(devices=8).fit(Net(Accuracy()))
