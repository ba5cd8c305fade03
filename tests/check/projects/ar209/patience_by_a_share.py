from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
def score(model, val):
    return sum((model(x).argmax(1) == y).sum().item() for x, y in val) / len(val)
def fit(net, rows, optimizer, train_loader, patience):
    model = DDP(net)
    val = DataLoader(rows, sampler=DistributedSampler(rows))
    best, bad = 0, 0
    for epoch in range(9):
        for x, y in train_loader:
            model(x).sum().backward()  # expect: AR209
            optimizer.step()
        acc = score(model, val)
        if acc > best:
            best, bad = acc, 0
        else:
            bad += 1
        if bad > patience:
            break
