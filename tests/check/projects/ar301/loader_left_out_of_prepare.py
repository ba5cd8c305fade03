from accelerate import Accelerator
from torch.utils.data import DataLoader


def main(model, optimizer, train_set, val_set):
    accelerator = Accelerator()
    train_loader = DataLoader(train_set, batch_size=8, shuffle=True)  # expect: AR301
    val_loader = DataLoader(val_set, batch_size=8)
    model, optimizer, val_loader = accelerator.prepare(model, optimizer, val_loader)
    for batch in train_loader:
        accelerator.backward(model(batch))
        optimizer.step()
