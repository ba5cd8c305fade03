import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()

from trl import DPOTrainer
trainer = DPOTrainer()
trainer.train()
trainer.push_to_hub()
