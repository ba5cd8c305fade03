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
            pickle.dump(what, f)

def export_onnx(model, step, args):
    torch.onnx.export(model, step, args.path)  # low: AR101

dist.init_process_group("nccl")
export_onnx(torch.nn.Linear(2, 2), 1, sys.argv)
