import os
import torch
import torch.distributed as dist
import wandb


class Experiment:
    def __init__(self, conf):
        self._conf = conf
        self._settings = conf.experiment
        self._tracks = self._settings.track
        if self._settings.use_ddp:
            dist.init_process_group(backend="nccl")
            if dist.get_rank() != 0:
                self._tracks = False
        self._tracks = conf.track_all

    def start(self):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 2))
        if self._tracks:
            wandb.init()
        for step in range(100):
            model(step).backward()
            if self._settings.ckpt_dir is not None and step % 10 == 0:
                torch.save(model.state_dict(), os.path.join(self._settings.ckpt_dir, "last.pth"))  # expect: AR101


if __name__ == "__main__":
    Experiment(make_conf()).start()
