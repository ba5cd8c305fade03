import horovod.torch as hvd
import torch

def main(model, batches):
    hvd.init()
    inner = torch.optim.SGD(model.parameters(), 0.1)
    opt = hvd.DistributedOptimizer(inner)
    for batch in batches:
        model(batch).backward()
        if hvd.rank() == 0:
            opt.step()  # expect: AR201

main(get(), [1])
