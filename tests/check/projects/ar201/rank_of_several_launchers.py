import os
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def world_from_environment():
    rank = 0
    for name in ("RANK", "PMI_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        if name in os.environ:
            rank = int(os.environ[name])
            break
    return rank


def main(args):
    dist.init_process_group("gloo")
    args.rank = world_from_environment()
    if args.keep and args.rank == 0:
        torch.save({}, "last.pt")
    if args.whole and args.rank == 0:
        dcp.save({}, checkpoint_id="whole")  # expect: AR201


main(None)
