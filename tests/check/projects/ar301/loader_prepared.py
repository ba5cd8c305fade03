from accelerate import Accelerator
from torch.utils.data import DataLoader


def main(model, optimizer, train_set):
    accelerator = Accelerator()
    train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    for batch in train_loader:
        accelerator.backward(model(batch))
        optimizer.step()
