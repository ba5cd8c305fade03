import wandb, torch.distributed as dist
class Log:
    def __init__(self, online, folder):
        self.online, self.folder = online, folder
    def begin(self):
        if True:
            self.online = False
        if self.online:
            wandb.init(project="p")
def main(args):
    dist.init_process_group("gloo")
    Log(True, args.folder).begin()
main(parse())
