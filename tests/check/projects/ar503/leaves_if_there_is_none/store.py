import os
import torch
import torch.distributed as dist


def restore(model, optimizer, out):
    path = os.path.join(out, "last.pt")
    if not os.path.exists(path):  # low: AR503
        return 0
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"]
