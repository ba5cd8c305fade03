"""In the style of nanochat: NCCL's device_id, a model made on meta, an optimizer that reduces by itself."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

rank, local_rank, size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
assert torch.cuda.is_available()
torch.manual_seed(42)
torch.cuda.manual_seed(42)
torch.set_float32_matmul_precision("high")
device = torch.device("cuda", local_rank)
torch.cuda.set_device(device)
dist.init_process_group(backend="nccl", device_id=device)
dist.barrier()
peak = {"a100": 312e12, "h100": 989e12}[torch.cuda.get_device_name(0).split("-")[0].split()[-1].lower()]


class Sharded(torch.optim.Optimizer):
    """Reduces each gradient to its owner, which updates, and gathers the parameters."""

    def __init__(self, params, lr=0.02):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        pending = []
        for group in self.param_groups:
            for p in group["params"]:
                part = torch.empty_like(p.grad[: p.shape[0] // size])
                work = dist.reduce_scatter_tensor(part, p.grad.contiguous(), op=dist.ReduceOp.AVG, async_op=True)
                pending.append((p, part, work.get_future(), group["lr"]))
        gathers = []
        for p, part, future, lr in pending:
            future.wait()
            mine = p[rank * part.shape[0] : (rank + 1) * part.shape[0]]
            mine.add_(orthogonal(part), alpha=-lr)
            gathers.append(dist.all_gather_into_tensor(p, mine.clone(), async_op=True).get_future())
        torch.futures.collect_all(gathers).wait()


@torch.compile
def orthogonal(g):
    x = g.bfloat16()
    x = x / (x.norm() + 1e-7)
    return (1.5 * x - 0.5 * x @ x.mT @ x).to(g.dtype)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.up, self.head = (
            nn.Embedding(64, 32),
            nn.Linear(32, 32, bias=False),
            nn.Linear(32, 64, bias=False),
        )

    def init_weights(self):
        for p in self.parameters():
            torch.nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = F.rms_norm(self.embed(tokens), (32,))
        logits = self.head(F.relu(self.up(x)).square()).float()
        return F.cross_entropy(logits.view(-1, 64), targets.view(-1))


with torch.device("meta"):
    model = Model()
model.to_empty(device=device)
model.init_weights()
model = torch.compile(model, dynamic=False)
optimizer = Sharded(model.parameters())
numbers = torch.Generator().manual_seed(rank)
torch.cuda.reset_peak_memory_stats()
for _ in range(4):
    scratch = torch.randint(64, (2 * 16 + 1,), generator=numbers).pin_memory()
    inputs = scratch[:-1].to(dtype=torch.int32, device=device, non_blocking=True).view(2, 16)
    targets = scratch[1:].to(dtype=torch.int64, device=device, non_blocking=True).view(2, 16)
    torch.cuda.synchronize()
    with torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16):
        loss = model(inputs, targets)
    loss.backward()
    optimizer.step()
    model.zero_grad(set_to_none=True)
    dist.all_reduce(loss.detach(), op=dist.ReduceOp.AVG)
assert torch.cuda.max_memory_allocated() > 0
dist.destroy_process_group()
