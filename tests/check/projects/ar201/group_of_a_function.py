import torch.distributed as dist
GROUP = None
def make():
    global GROUP
    GROUP = dist.new_group([0, 1])
def group():
    return GROUP
def serve(lines):
    for at, line in enumerate(lines):
        if at % 4 != dist.get_rank(group=group()):
            continue
        dist.broadcast(line, 0, group=group())
serve([1])
