import os

import torch
import torch.distributed as dist


def save(state, folder):
    target = os.path.join(folder, "best.pt")
    torch.save(state, target + ".tmp")
    os.replace(target + ".tmp", target)


def main(args, model):
    dist.init_process_group("gloo")
    for epoch in range(args.epochs):
        score = torch.zeros(1)
        dist.all_reduce(score)
        if dist.get_rank() == 0:
            save(model.state_dict(), args.out)
    model.load_state_dict(torch.load(os.path.join(args.out, "best.pt")))  # expect: AR405


main(read_args(), torch.nn.Linear(2, 2))
