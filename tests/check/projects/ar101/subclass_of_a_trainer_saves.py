import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

from transformers import Trainer
class Mine(Trainer):
    def save_model(self, output_dir=None, _internal_call=False):
        self.model.save_pretrained(output_dir)  # expect: AR101
