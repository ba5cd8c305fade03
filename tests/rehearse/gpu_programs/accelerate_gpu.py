"""Accelerate with bf16: its state saved and loaded, values gathered."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

set_seed(0)
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
assert accelerator.device.type == "cuda"
assert accelerator.state.backend == "nccl"
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader = DataLoader(data, batch_size=4, shuffle=True, pin_memory=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.gather(loss.detach())
accelerator.save_state("state")
accelerator.wait_for_everyone()
accelerator.load_state("state")
assert accelerator.gather(torch.ones(1, device=accelerator.device)).sum() == 2
accelerator.end_training()
