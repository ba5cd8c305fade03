import torch

def read(model, path):
    state = torch.load(path)
    model.load_state_dict(state)

def read_pretrained(model, path):
    model.load_state_dict(torch.load(path))

def write(model, path):
    state = whole(model, Full(rank0_only=True, offload_to_cpu=True))
    torch.save(state, path)
