import torch.distributed as dist

dist.init_process_group('nccl')
from ai.files import maybe_download, save_json

def main(url):
    maybe_download(url)  # expect: AR106
    save_json({}, 'a.json')

main(1)
