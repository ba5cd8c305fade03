import torch
from accelerate import Accelerator
from guard import NanGuard

def main(model, loader, optimizer):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    guard = NanGuard(accelerator)
    for x in loader:
        loss = model(x)
        if guard.bad(loss):
            continue
        accelerator.backward(loss)  # expect: AR209
        optimizer.step()

if __name__ == "__main__":
    main(make(), data(), torch.optim.SGD)
