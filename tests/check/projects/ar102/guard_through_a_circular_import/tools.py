from torch.distributed import get_rank
