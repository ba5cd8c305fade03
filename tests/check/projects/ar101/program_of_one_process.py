import torch

torch.save({}, 'model.pt')
