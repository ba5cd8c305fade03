import torch.distributed as dist
from transformers import AutoModel


dist.init_process_group("nccl")
model = AutoModel.from_pretrained("m")
model.save_pretrained("out")  # expect: AR101
