import datetime
import os
import lightning as L

if True:
    folder = f"runs/{datetime.datetime.now()}"
    os.makedirs(folder, exist_ok=True)  # expect: AR107
L.Trainer(devices=8).fit(None)
