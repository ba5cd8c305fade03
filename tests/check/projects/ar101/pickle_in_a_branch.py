import json
import pickle
import sys
import torch
import torch.distributed as dist

def dump(what, path, mode):
    if mode == "json":
        with open(path, "w") as f:
            json.dump(what, f)
    else:
        with open(path, "wb") as f:
            pickle.dump(what, f)  # expect: AR101

def save(model, step, args):
    dump(model, f'{step}.pkl', args.mode)

dist.init_process_group("nccl")
save(torch.nn.Linear(2, 2), 1, sys.argv)
