import wandb
from accelerate import Accelerator
import helpers
def start():
    accelerator = Accelerator()
    return accelerator

def main():
    if helpers.get_rank() == 0:
        wandb.init(project='p')  # expect: AR103
    start()

main()
