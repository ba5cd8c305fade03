import torch
from accelerate import Accelerator


@torch.no_grad()
def score(model, batches):
    return [model(x).mean() for x in batches]


def main(batches, make):
    accelerator = Accelerator()
    model, optimizer, batches = accelerator.prepare(make(), torch.optim.SGD(), batches)
    for step, batch in enumerate(batches):
        accelerator.backward(model(batch))
        optimizer.step()
        if accelerator.is_main_process and step % 9 == 0:
            print(model(batch))  # missed: AR204


main([], None)
