from torch.utils.data import IterableDataset, get_worker_info


class Rows(IterableDataset):
    def __init__(self, files):
        self.files = files

    def __iter__(self):
        info = get_worker_info()  # expect: AR301
        number, of = (info.id, info.num_workers) if info else (0, 1)
        for path in self.files[number::of]:
            yield from open(path)
