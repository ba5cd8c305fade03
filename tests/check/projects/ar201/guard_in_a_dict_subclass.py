import torch.distributed as dist

dist.init_process_group('nccl')
class Settings(dict):
    pass

class Loop:
    def __init__(self):
        self.args = Settings()
        self.args['is_master'] = dist.get_rank() == 0
    def end(self, x):
        if self.args['is_master']:
            dist.reduce(x, 0)  # missed: AR201
