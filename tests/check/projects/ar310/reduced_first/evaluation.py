def evaluate(model, val_loader):
    total, count = 0.0, 0
    for batch in val_loader:
        total += model(batch)
        count += 1
    total, count = reduce_sums(total, count)
    return total / count
