import random

from torch.utils.data import Dataset


class Rows(Dataset):
    def __init__(self, files):
        self.files = list(files)
        random.shuffle(self.files)

    def __len__(self):
        return len(self.files)
