from lightning.fabric import Fabric
def nll(model, batch):
    return -model(batch.ids).log_softmax(-1).gather(-1, batch.ids).mean()
def validate(model, valid_loader):
    return sum(nll(model, batch).item() for batch in valid_loader) / len(valid_loader)
def fit(fabric: Fabric, model, loader, valid_set):
    valid_loader = fabric.setup_dataloaders(valid_set)
    best = 1e9
    for epoch in range(9):
        for batch in loader:
            fabric.backward(nll(model, batch))
        value = validate(model, valid_loader)
        if value < best:
            best = value
            fabric.save('best.ckpt', model)  # expect: AR203
