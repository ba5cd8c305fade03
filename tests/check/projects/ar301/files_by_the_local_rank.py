from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

def part(args, files):
    args.mine = files[args.local_rank :: 8]

def train(args, files, model):
    model = DistributedDataParallel(model)
    train_loader = DataLoader(Files(args), batch_size=args.batch_size, drop_last=True)
    for batch in train_loader:
        model(batch).sum().backward()
