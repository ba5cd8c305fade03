import wandb
from lib import Callback

@Callback.register('wandb')
class Log(Callback):
    def __init__(self):
        wandb.init(project='p')  # low: AR103
