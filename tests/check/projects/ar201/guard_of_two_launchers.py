import torch.distributed as dist


def start(job, local_rank):
    dist.init_process_group("nccl")
    job.settings["is_master"] = local_rank == 0


def start_on_one_node(job, rank):
    job.settings["is_master"] = rank == 0


class Trainer:
    def reduce(self, scores):
        if self.settings["is_master"]:
            dist.reduce(scores, 0)  # expect: AR201
