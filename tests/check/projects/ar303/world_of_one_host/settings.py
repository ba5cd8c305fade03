import torch
from dataclasses import dataclass, field
@dataclass
class Host:
    gpus: int = field(default_factory=torch.cuda.device_count)
