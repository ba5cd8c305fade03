import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

class timed:
    def __init__(self, function):
        self.function = function
    def __call__(self, *given):
        return self.function(*given)
@timed
def save():
    open('metrics.json', 'w')  # expect: AR102
save()
