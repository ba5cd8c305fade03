import wandb
from torch.distributed.device_mesh import init_device_mesh

def mesh_rank(mesh):
    return 0 if mesh is None else mesh.get_coordinate()[0]

def train(config):
    mesh = init_device_mesh("cuda", (config.size,)) if config.size > 1 else None
    run = wandb.init() if mesh is None or mesh_rank(mesh) == 0 else None
