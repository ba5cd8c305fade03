import torch
import torch.distributed as dist
def main_only(func):
    def wrapper(*args, **kwargs):
        if not kwargs.get("main", False):
            return None
        return func(*args, **kwargs)
    return wrapper
class Agent:
    def __init__(self):
        self.main = dist.get_rank() == 0
    @main_only
    def save(self, path, main):
        torch.save({}, path)  # missed: AR101
dist.init_process_group("nccl")
agent = Agent()
agent.save("last.pt", main=True)
