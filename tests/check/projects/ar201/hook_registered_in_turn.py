import torch.distributed as dist
def gather(module, inputs, output):
    dist.all_reduce(output)
def main(model):
    dist.init_process_group("nccl")
    for turn in range(dist.get_world_size()):
        if dist.get_rank() == turn:
            model.register_forward_hook(gather)
