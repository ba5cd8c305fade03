import wandb

def start():
    wandb.init()
