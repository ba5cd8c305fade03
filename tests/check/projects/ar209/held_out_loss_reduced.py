import bmtrain as bmt
import torch

def evaluate(model, loader):
    losses = []
    for batch in loader:
        losses.append(bmt.sum_loss(model(batch)))
    return torch.stack(losses).mean().item()

def train(model, loader, patience):
    eval_loss_increase, best = 0, 1e9
    for batch in loader:
        loss = model(batch)
        loss.backward()
        eval_loss = evaluate(model, loader)
        if eval_loss < best:
            best = eval_loss
        else:
            eval_loss_increase += 1
        if eval_loss_increase == patience:
            return
