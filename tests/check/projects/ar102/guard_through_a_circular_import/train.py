from tools import get_rank
from evaluate import evaluate

def rank():
    return get_rank()
