import torch as t

def save_checkpoint(state, path):
    t.save(state, path)  # expect: AR101
