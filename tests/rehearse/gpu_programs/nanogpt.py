"""In the style of nanoGPT: NCCL, bf16 autocast, torch.compile, pinned batches, gradient accumulation, DDP."""

import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

init_process_group(backend="nccl")
rank, local_rank, size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
device = f"cuda:{local_rank}"
torch.cuda.set_device(device)
accumulation = 4 // size
torch.manual_seed(1337 + rank)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
device_type = "cuda" if "cuda" in device else "cpu"
dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
context = torch.amp.autocast(device_type=device_type, dtype=dtype)
data = (np.arange(4096) % 64).astype(np.uint16)


def get_batch():
    starts = torch.randint(len(data) - 16, (4,))
    x = torch.stack([torch.from_numpy(data[i : i + 16].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 17].astype(np.int64)) for i in starts])
    return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(64, 32), nn.LayerNorm(32)
        self.qkv, self.out, self.head = nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 64)
        self.drop = nn.Dropout(0.1)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        q, k, v = (part.view(*part.shape[:2], 4, 8).transpose(1, 2) for part in self.qkv(self.norm(x)).split(32, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        logits = self.head(x + self.drop(self.out(y)))
        return F.cross_entropy(logits.view(-1, 64), targets.view(-1))


raw_model = GPT().to(device)
scaler = torch.cuda.amp.GradScaler(enabled=dtype == torch.float16)
optimizer = torch.optim.AdamW(raw_model.parameters(), lr=1e-3, fused=True)
model = DDP(torch.compile(raw_model), device_ids=[local_rank])
assert all(name.startswith("module._orig_mod.") for name in model.state_dict())
x, y = get_batch()
for _ in range(6):
    for micro_step in range(accumulation):
        model.require_backward_grad_sync = micro_step == accumulation - 1
        with context:
            loss = model(x, y) / accumulation
        x, y = get_batch()
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
if rank == 0:
    torch.save({"model": raw_model.state_dict(), "optimizer": optimizer.state_dict()}, "ckpt.pt")
destroy_process_group()
