def evaluate(model, val_loader):
    total, count = 0.0, 0
    for batch in val_loader:
        total += model(batch)
        count += 1
    return total / count  # expect: AR310
