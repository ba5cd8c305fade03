import math
import misc

def train(model, loader):
    for batch in loader:
        loss = model(batch)
        value = loss.item()
        if not math.isfinite(value):
            raise ValueError
        loss.backward()
        value = misc.all_reduce_mean(value)
