import os

def has(path):
    return os.path.isfile(path)
