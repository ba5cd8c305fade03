import os
from accelerate import Accelerator
from torch import distributed as far


def newest(accelerator, out):
    found = [None]
    if accelerator.is_main_process and os.path.isdir(out):
        found = [sorted(os.listdir(out))[-1]]
    far.broadcast_object_list(found, 0)
    return found[0]


def main(out, model, loader):
    accelerator = Accelerator()
    model, loader = accelerator.prepare(model, loader)
    first, state = 0, newest(accelerator, out)
    if state is not None:
        first = int(state.split("-")[1]) + 1
    for epoch in range(first, 9):
        for batch in loader:
            accelerator.backward(model(batch))


main("out", None, None)
