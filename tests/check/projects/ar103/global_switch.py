import torch.distributed as dist

dist.init_process_group('nccl')
import wandb
logs = True

def main(args):
    global logs
    if not args.logs:
        logs = False
    if logs:
        wandb.init(project='p')  # expect: AR103

main(1)
